"""Device activity of the whole process between two fences, through CUPTI.

Every kernel, memcpy and memset on any stream or thread that starts between the fences
belongs to the call; the span is first start to last end. A marker kernel is launched
before the first and after the second fence: where the record of one is missing, CUPTI is
not recording (a profiler has taken it, say) and the sample is an error, never a number.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from kopt_harness.bench.timers import Sample
from kopt_harness.errors import InfraError, UnavailableError

from ._flush import L2Flush

__all__ = ["CuptiTimer", "create"]

_BUFFER_BYTES = 8 << 20


class _Activity(NamedTuple):
    kind: str
    name: str
    start_ns: int
    end_ns: int


class CuptiTimer:
    """Owns CUPTI in this process."""

    def __init__(self, flush: L2Flush) -> None:
        import torch

        self._cupti = _import_cupti()
        self._flush = flush
        self.flush_bytes = flush.nbytes
        # Bound here, before candidate code can replace them.
        self._synchronize = torch.cuda.synchronize
        self._launch_marker = torch.zeros(32, device="cuda").add_
        self._seen: list[_Activity] = []
        self._recording = False
        kinds = self._cupti.ActivityKind
        self._kinds = {
            kinds.CONCURRENT_KERNEL: "kernel",
            kinds.MEMCPY: "memcpy",
            kinds.MEMSET: "memset",
        }

    def flush(self) -> None:
        """Cold L2, then wait; starts recording at the first call, for no profiler can after it."""
        if not self._recording:
            self._record()
        self._flush()

    def measure(self, call: Any) -> Sample:
        """Span of the device activity of ``call.run()``."""
        self._seen.clear()
        self._mark()
        fence_ns = self._cupti.get_timestamp()
        call.run()
        host_ns = self._cupti.get_timestamp() - fence_ns
        self._synchronize()
        end_ns = self._cupti.get_timestamp()
        self._mark()
        self._cupti.activity_flush_all(1)
        seen, self._seen = self._seen, []
        _require_timestamps(seen)
        marked = (any(a.start_ns < fence_ns for a in seen), any(a.start_ns > end_ns for a in seen))
        if not all(marked):
            raise InfraError(
                "CUPTI does not record: a marker kernel is missing",
                hint="is another profiler attached to this process?",
            )
        return _sample([a for a in seen if fence_ns <= a.start_ns <= end_ns], fence_ns, host_ns)

    def _record(self) -> None:
        self._cupti.activity_register_callbacks(self._buffer_requested, self._buffer_completed)
        for kind in self._kinds:
            self._cupti.activity_enable(kind)
        self._recording = True

    def _mark(self) -> None:
        self._launch_marker(1)
        self._synchronize()

    def _buffer_requested(self) -> tuple[int, int]:
        return _BUFFER_BYTES, 0

    def _buffer_completed(self, activities: list[Any]) -> None:
        for activity in activities:
            kind = self._kinds.get(activity.kind)
            if kind is not None:
                name = str(activity.name) if kind == "kernel" else kind
                self._seen.append(_Activity(kind, name, activity.start, activity.end))


def _require_timestamps(activities: list[_Activity]) -> None:
    """Before they are sorted by time: one without a start would seem to lie before the call."""
    if any(a.end_ns < a.start_ns or a.start_ns == 0 for a in activities):
        raise InfraError("CUPTI gave an activity without timestamps", hint="retry; see doctor")


def _sample(activities: list[_Activity], fence_ns: int, host_ns: int) -> Sample:
    if not activities:
        return Sample(0, {"launches": 0, "host_ns": host_ns, "kernels": []})
    first = min(a.start_ns for a in activities)
    span_ns = max(a.end_ns for a in activities) - first
    kernels: dict[str, int] = {}
    for activity in activities:
        kernels[activity.name] = kernels.get(activity.name, 0) + activity.end_ns - activity.start_ns
    details = {
        "launches": len(activities),
        "busy_ns": sum(kernels.values()),
        "host_ns": host_ns,
        "before_first_ns": first - fence_ns,
        "kernels": [{"name": n, "ns": t} for n, t in sorted(kernels.items(), key=lambda x: -x[1])],
    }
    return Sample(span_ns, details)


def _import_cupti() -> Any:
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise UnavailableError(
            f"the cupti timer needs cupti-python: {error}",
            hint="pip install -e '.[gpu]', or choose --timer events",
        ) from error


def create(*, cache: str, torch_device: str, l2_bytes: int | None) -> CuptiTimer:
    """A timer for any cache state."""
    return CuptiTimer(L2Flush(cache, torch_device, l2_bytes))
