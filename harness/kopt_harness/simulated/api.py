"""What solutions call: launches, streams, events and memory of this process's device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .engine import MAX_SHARED_BYTES, Gpu, Stream, Token, Work
from .l2 import Range

__all__ = [
    "Event",
    "compile_kernel",
    "current_stream",
    "empty",
    "gpu",
    "host_function",
    "launch",
    "memcpy",
    "memset",
    "new_stream",
    "persist",
    "synchronize",
    "use_stream",
]

_COMPILE_NS = 500_000
_devices: list[Gpu] = []
_opening = threading.Lock()


def gpu() -> Gpu:
    """The device of this process; made at first use."""
    with _opening:
        if not _devices:
            _devices.append(Gpu())
        return _devices[0]


def launch(
    kernel: Callable[[], object],
    *,
    name: str = "kernel",
    ns: float = 1_000,
    blocks: int = 1,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    stream: Stream | None = None,
    shared_bytes: int = 0,
    faults: bool = False,
) -> None:
    """Launches a kernel; returns at once.

    Args:
        kernel: what it does to memory, when its turn comes.
        name: in the activity records.
        ns: its time on the device, beside that for its bytes.
        blocks: extent of its grid.
        reads: tensors that it reads: they are fetched, and are in the L2 afterwards.
        writes: tensors that it writes.
        stream: the current one by default.
        shared_bytes: of a block; above what the device has, nothing runs and only
            ``Gpu.last_error`` says so.
        faults: whether it touches memory that is not there.
    """
    device = gpu()
    if shared_bytes > MAX_SHARED_BYTES:
        device.refuse(
            f"{name}: {shared_bytes} bytes of shared memory, {MAX_SHARED_BYTES} are there"
        )
        return
    work = Work(
        kind="kernel",
        name=name,
        run=kernel,
        ns=ns,
        reads=_ranges(reads),
        writes=_ranges(writes),
        size=blocks,
        faults=faults,
    )
    device.submit(work, stream)


def memcpy(target: Any, source: Any, *, stream: Stream | None = None) -> None:
    """Copies a tensor in stream order."""
    work = Work(
        kind="memcpy",
        name="memcpy",
        run=lambda: target.copy_(source),
        reads=_ranges([source]),
        writes=_ranges([target]),
        size=target.nbytes,
    )
    gpu().submit(work, stream)


def memset(target: Any, value: float = 0, *, stream: Stream | None = None) -> None:
    """Fills a tensor in stream order."""
    work = Work(
        kind="memset",
        name="memset",
        run=lambda: target.fill_(value),
        writes=_ranges([target]),
        size=target.nbytes,
    )
    gpu().submit(work, stream)


def host_function(function: Callable[[], object], *, stream: Stream | None = None) -> None:
    """Calls a function on the host when the stream gets there."""
    gpu().submit(Work(kind="host", name="host", run=function), stream)


def new_stream() -> Stream:
    """A stream that waits for no other."""
    return gpu().new_stream()


def current_stream() -> Stream:
    """Of this thread."""
    return gpu().current_stream


@contextmanager
def use_stream(stream: Stream) -> Iterator[None]:
    """Makes a stream the current one of this thread."""
    device = gpu()
    before = device.current_stream
    device.current_stream = stream
    try:
        yield
    finally:
        device.current_stream = before


def synchronize() -> None:
    """Waits for all work of this process."""
    gpu().synchronize()


class Event:
    """A point in a stream."""

    def __init__(self) -> None:
        self._token = Token()

    def record(self, stream: Stream | None = None) -> None:
        """Marks what the stream has been given so far."""
        self._token = Token()
        gpu().submit(Work(kind="record", name="event", token=self._token), stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Lets later work of a stream wait until the point is reached."""
        gpu().submit(Work(kind="wait", name="event", token=self._token), stream)

    def synchronize(self) -> None:
        """Lets the host wait until then."""
        gpu().wait(lambda: self._token.reached_ns is not None)

    def elapsed_ns(self, later: Event) -> float:
        """From this one to another, both of which must have been reached."""
        begin, end = self._token.reached_ns, later._token.reached_ns
        assert begin is not None, "waited for"
        assert end is not None, "waited for"
        return end - begin


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """A tensor of device memory with whatever was there before."""
    return gpu().memory.empty(tuple(shape), dtype)


def persist(tensor: Any, *, set_aside_bytes: int = 0) -> None:
    """Sets cache aside for a tensor and lets it stay there, whatever else is written."""
    cache = gpu().l2
    cache.persisting_limit = max(cache.persisting_limit, set_aside_bytes)
    cache.persist(_ranges([tensor]))


def compile_kernel(name: str) -> str:
    """What a just-in-time compiler does: takes host time, and is counted."""
    device = gpu()
    device.compilations += 1
    device.spend(_COMPILE_NS)
    return name


def _ranges(tensors: Sequence[Any]) -> tuple[Range, ...]:
    return tuple(Range(t.data_ptr(), t.nbytes) for t in tensors)
