"""The device: streams of pending work, its clock, its errors.

Host time is simulated as well: each API call takes ``LAUNCH_NS``, waiting takes until the
awaited work has ended. A process that waits sleeps as long as the clock has moved, so that a
clock outside of it sees no less time than the device has taken.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from kopt_harness.bench.timers.census import Activity
from kopt_harness.targets.simulated import DRAM_GBPS, L2_BYTES

from .l2 import L2, Range
from .machine import Machine
from .memory import Memory
from .trace import KINDS, Trace

if TYPE_CHECKING:
    from .counters import Counters
    from .graph import Graph

__all__ = [
    "HANG_NS",
    "LAUNCH_NS",
    "DeviceFaultError",
    "Gpu",
    "LaunchError",
    "Stream",
    "Token",
    "Work",
]

LAUNCH_NS = 2_000
"""Host time of one API call."""
L2_GBPS = 400.0
MAX_SHARED_BYTES = 64 << 10
"""Shared memory that a block can have."""
HANG_NS = math.inf
"""Duration of a kernel that never ends."""
_FIRST_NS = 1_000_000
_sleep = time.sleep


class DeviceFaultError(RuntimeError):
    """A kernel has faulted: every later call of this process fails with the same error."""


class LaunchError(RuntimeError):
    """A launch had parameters that the device cannot serve; nothing ran."""


@dataclass
class Token:
    """The point in a stream at which an event was recorded."""

    reached_ns: float | None = None


@dataclass(frozen=True)
class Work:
    """Something that a stream does when its turn comes."""

    kind: str
    """``kernel``, ``memcpy``, ``memset``, ``host``, ``record`` or ``wait``."""
    name: str
    run: Callable[[], object] | None = None
    ns: float = 0
    """On the device, beside the time for its bytes."""
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    size: int = 0
    token: Token | None = None
    faults: bool = False
    """Whether it touches memory that is not there."""
    enqueued_ns: float = 0
    correlation: int = 0


@dataclass
class Stream:
    """Work in order; streams do not wait for each other unless an event says so."""

    number: int
    pending: deque[Work] = field(default_factory=deque)
    tail_ns: float = 0
    running: tuple[float, Work] | None = None
    """End and work that has started."""
    graph: Graph | None = None
    """What captures the work instead of running it."""


class Gpu:
    """One device and its context in one process."""

    def __init__(self, *, l2_bytes: int = L2_BYTES, memory_bytes: int = 1 << 30) -> None:
        self.trace = Trace()
        self.machine = Machine()
        self.memory = Memory(memory_bytes)
        self.l2 = L2(l2_bytes)
        self.default_stream = Stream(0)
        self.compilations = 0
        """Kernels that were compiled since the start."""
        self.last_error: str | None = None
        """Of a launch that did not happen; stays until somebody looks."""
        self.counters: Counters | None = None
        """For a profiler outside of this process."""
        self._streams = [self.default_stream]
        self._host_ns: float = _FIRST_NS
        self._slept_ns: float = _FIRST_NS
        self._correlations = count(1)
        self._fault: str | None = None
        self._lock = threading.RLock()
        self._local = threading.local()

    @property
    def current_stream(self) -> Stream:
        """Of the calling thread."""
        stream: Stream = getattr(self._local, "stream", self.default_stream)
        return stream

    @current_stream.setter
    def current_stream(self, stream: Stream) -> None:
        self._local.stream = stream

    def new_stream(self) -> Stream:
        """A stream that does not wait for the default one."""
        with self._lock:
            stream = Stream(len(self._streams))
            self._streams.append(stream)
            return stream

    def timestamp(self) -> int:
        """Now, on the clock of the records."""
        return math.ceil(self._host_ns)

    def spend(self, ns: float) -> None:
        """Host time that passes."""
        with self._lock:
            self._host_ns += ns

    def submit(self, work: Work, stream: Stream | None = None) -> None:
        """Puts work into a stream, or into the graph that captures it.

        Raises:
            DeviceFaultError: an earlier kernel has faulted.
        """
        self.submit_all((work,), stream)

    def submit_all(self, works: Sequence[Work], stream: Stream | None = None) -> None:
        """Work of one API call: it has one correlation."""
        with self._lock:
            self._check()
            chosen = self.current_stream if stream is None else stream
            if chosen.graph is not None:
                chosen.graph.nodes.extend(works)
                return
            self._host_ns += LAUNCH_NS
            correlation = next(self._correlations)
            for work in works:
                placed = _placed(work, self._host_ns, correlation)
                chosen.pending.append(placed)

    def refuse(self, why: str) -> None:
        """A launch that did not happen; code that does not look goes on without it."""
        with self._lock:
            self._host_ns += LAUNCH_NS
            next(self._correlations)
            self.last_error = why

    def take_last_error(self) -> str | None:
        """The last launch error, which is forgotten then."""
        error, self.last_error = self.last_error, None
        return error

    def synchronize(self) -> None:
        """Waits for all streams.

        Raises:
            DeviceFaultError: a kernel has faulted.
        """
        self.wait(lambda: not any(s.pending or s.running for s in self._streams))

    def wait(self, done: Callable[[], bool]) -> None:
        """Lets the device work until a condition holds.

        Raises:
            DeviceFaultError: a kernel has faulted.
        """
        with self._lock:
            while not done():
                self._step()
            self._sleep()
            self._check()

    def _step(self) -> None:
        """Ends the piece of work that ends next."""
        self._start_ready()
        running = [s for s in self._streams if s.running is not None]
        if not running:
            if any(s.pending for s in self._streams):
                raise DeviceFaultError("deadlock: a stream waits for an event nobody records")
            return  # the last piece of work was to wait for an event, which has come
        stream = min(running, key=lambda s: (s.running[0], s.number))  # type: ignore[index]
        assert stream.running is not None
        end_ns, work = stream.running
        if end_ns == HANG_NS:
            while True:
                _sleep(1)
        stream.running = None
        self._host_ns = max(self._host_ns, end_ns)
        if work.token is not None and work.kind == "record":
            work.token.reached_ns = end_ns
        if work.faults:
            self._fault = f"{work.name}: illegal memory access"
        if work.run is not None and self._fault is None:
            work.run()

    def _start_ready(self) -> None:
        for stream in self._streams:
            while stream.running is None and stream.pending:
                work = stream.pending[0]
                ready_ns = max(stream.tail_ns, work.enqueued_ns)
                if work.kind == "wait":
                    assert work.token is not None
                    if work.token.reached_ns is None:
                        break
                    stream.pending.popleft()
                    stream.tail_ns = max(ready_ns, work.token.reached_ns)
                    continue
                stream.pending.popleft()
                end_ns = ready_ns + self._duration_ns(work)
                stream.tail_ns = end_ns
                stream.running = (end_ns, work)
                if work.kind in KINDS and end_ns != HANG_NS:
                    self.trace.add(_record(work, stream, ready_ns, end_ns))
                    if self.counters is not None and work.kind == "kernel":
                        self.counters.add(work.name, work.size, stream.number, end_ns - ready_ns)

    def _duration_ns(self, work: Work) -> float:
        traffic = self.l2.touch((*work.reads, *work.writes))
        moved = traffic.miss_bytes / DRAM_GBPS + traffic.hit_bytes / L2_GBPS
        if work.kind not in KINDS:
            return 0
        return max(1.0, (work.ns + moved) * self.machine.slowdown)

    def _sleep(self) -> None:
        """A clock outside sees what the device has taken."""
        behind = self._host_ns - self._slept_ns
        self._slept_ns = self._host_ns
        _sleep(behind / 1e9)

    def _check(self) -> None:
        if self._fault is not None:
            raise DeviceFaultError(self._fault)


def _placed(work: Work, enqueued_ns: float, correlation: int) -> Work:
    return Work(**{**vars(work), "enqueued_ns": enqueued_ns, "correlation": correlation})


def _record(work: Work, stream: Stream, start_ns: float, end_ns: float) -> Activity:
    return Activity(
        kind=work.kind,
        name=work.name,
        start_ns=round(start_ns),
        end_ns=round(end_ns),
        correlation=work.correlation,
        stream=stream.number,
        size=work.size,
    )
