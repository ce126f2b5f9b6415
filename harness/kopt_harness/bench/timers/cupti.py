"""Device activity of the whole process around a call, through CUPTI.

Kernels, copies and fills of every stream and thread are recorded and attributed by the
census: what was launched between the first marker kernel and the one right after the return
belongs to the call, its span is first start to last end. The markers have grid sizes that
are drawn at random and learned from their first records. A window that does not hold each of
them once, or lost records, is no sample (another profiler has taken CUPTI, say).
"""

from __future__ import annotations

import ctypes
import importlib
import secrets
from typing import Any

from kopt_harness.bench.timers import Sample
from kopt_harness.errors import InfraError, UnavailableError

from ._flush import L2Flush
from .census import (
    Activity,
    Bracket,
    Flushes,
    Markers,
    MissingMarkerError,
    require_sound,
    take_census,
    without_marker,
)

__all__ = ["CuptiTimer", "create"]

_BUFFER_BYTES = 64 << 10
"""CUPTI asks for another one when it is full. A large one costs each call milliseconds, and one
that the allocator maps anew costs page faults."""
_MARKER_STEP = 4096
"""Elements by which two markers differ at least: more than one block of a fill handles."""
_MARKER_STEPS = 64


class CuptiTimer:
    """Owns CUPTI in this process."""

    def __init__(self, flush: L2Flush) -> None:
        import torch

        self._cupti = _import_cupti()
        self._flush = flush
        self.flush_bytes = flush.nbytes
        # Bound here, before candidate code can replace them.
        self._synchronize = torch.cuda.synchronize
        steps = secrets.SystemRandom().sample(range(1, _MARKER_STEPS), 3)
        self._launch = tuple(torch.zeros(s * _MARKER_STEP, device="cuda").add_ for s in steps)
        self._seen: list[Activity] = []
        self._markers: Markers | None = None
        kinds = self._cupti.ActivityKind
        self._kinds = {
            kinds.CONCURRENT_KERNEL: "kernel",
            kinds.MEMCPY: "memcpy",
            kinds.MEMSET: "memset",
        }
        self._compilations = CompileWatch()
        self._flushes = Flushes()

    def flush(self) -> None:
        """Cold L2, then wait; starts recording at the first call, for no profiler can after it."""
        if self._markers is None:
            self._record()
            self._markers = self._learn_markers()
        self._take()
        self._flush()
        self._flushes.saw(self._take())

    def measure(self, call: Any) -> Sample:
        """Span of the device activity of ``call.run()``.

        Raises:
            InfraError: records are missing that candidate code has not taken.
        """
        assert self._markers is not None, "flushed before"
        self._compilations.start()
        self._launch[0](1)
        self._synchronize()
        opening = without_marker(self._take(), self._markers.begin)
        # CUPTI has handed its buffer over and asks for another one in a launch, which takes it tens
        # of microseconds: in that of a marker, not between two kernels of the call.
        self._launch[0](1)
        self._synchronize()
        fence_ns = self._cupti.get_timestamp()
        call.run()
        host_ns = self._cupti.get_timestamp() - fence_ns
        self._launch[1](1)
        call.seal()
        self._launch[2](1)
        self._synchronize()
        records = [*opening, *self._take()]
        require_sound(records, dropped=self._dropped())
        try:
            census = take_census(records, self._markers, fence_ns=fence_ns, host_ns=host_ns)
        except MissingMarkerError as error:
            # Recording was on when the call began, and nothing was dropped.
            return Sample(0, {"launches": 0, "host_ns": host_ns, "tampered": error.message})
        details = census.details(self._flushes.beside())
        if compiled := self._compilations.stop():
            details["compiled"] = compiled
        return Sample(census.span_ns, details)

    def _record(self) -> None:
        self._cupti.activity_register_callbacks(self._buffer_requested, self._buffer_completed)
        for kind in self._kinds:
            self._cupti.activity_enable(kind)

    def _learn_markers(self) -> Markers:
        """Launches each marker once, alone, to see its record."""
        found = []
        for launch in self._launch:
            self._synchronize()
            self._take()
            launch(1)
            self._synchronize()
            records = [a for a in self._take() if a.kind == "kernel"]
            if len(records) != 1:
                raise InfraError(
                    f"CUPTI does not record: {len(records)} records of one marker kernel",
                    hint="is another profiler attached to this process?",
                )
            found.append(Bracket(records[0].name, records[0].size))
        if len(set(found)) != len(found):
            raise InfraError("CUPTI gives two marker kernels the same grid", hint="see doctor")
        return Markers(*found)

    def _take(self) -> list[Activity]:
        """What was recorded since the last time, out of buffers that are not full as well."""
        self._cupti.activity_flush_all(1)
        seen, self._seen = self._seen, []
        return seen

    def _dropped(self) -> int | None:
        """Records that CUPTI had no room for since it was last asked; None if it does not say.

        Context 0 is its global queue.
        """
        count = ctypes.c_size_t(0)
        try:
            self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
        except self._cupti.cuptiError:
            return None
        return count.value

    def _buffer_requested(self) -> tuple[int, int]:
        return _BUFFER_BYTES, 0

    def _buffer_completed(self, activities: list[Any]) -> None:
        for activity in activities:
            kind = self._kinds.get(activity.kind)
            if kind is not None:
                self._seen.append(read_record(activity, kind))


def read_record(activity: Any, kind: str) -> Activity:
    """A record of CUPTI in our form; fields that a version of it lacks are 0."""
    kernel = kind == "kernel"
    return Activity(
        kind=kind,
        name=str(activity.name) if kernel else kind,
        start_ns=activity.start,
        end_ns=activity.end,
        correlation=getattr(activity, "correlation_id", 0),
        stream=getattr(activity, "stream_id", 0),
        size=getattr(activity, "grid_x" if kernel else "bytes", 0),
    )


class CompileWatch:
    """Counts what Triton compiles, where a solution has loaded Triton."""

    def __init__(self) -> None:
        self._count = 0
        self._installed = False

    def start(self) -> None:
        """Counts from zero; hooks in as soon as there is something to hook into."""
        import sys

        self._count = 0
        triton = sys.modules.get("triton")
        if triton is None or self._installed:
            return
        runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
        if runtime is not None and runtime.jit_post_compile_hook is None:
            runtime.jit_post_compile_hook = self._compiled
            self._installed = True

    def stop(self) -> int:
        """Kernels that were compiled since ``start``."""
        return self._count

    def _compiled(self, **event: Any) -> None:
        del event
        self._count += 1


def _import_cupti() -> Any:
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise UnavailableError(
            f"the cupti timer needs cupti-python: {error}",
            hint="pip install -e '.[gpu]', or choose --timer events",
        ) from error


def create(
    *, cache: str, torch_device: str, l2_bytes: int | None, buffer: Any = None
) -> CuptiTimer:
    """A timer for any cache state."""
    return CuptiTimer(L2Flush(cache, torch_device, l2_bytes, buffer))
