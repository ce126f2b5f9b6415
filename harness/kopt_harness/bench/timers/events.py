"""CUDA events around the call, by explicit choice only.

Includes gaps between launches and sees only the current stream; use ``cupti`` to judge. A
third event is recorded when the whole device is idle: where it comes much later than the
second, work ran that this timer does not see.
"""

from __future__ import annotations

from typing import Any

from kopt_harness.bench.timers import Sample

from ._flush import L2Flush

__all__ = ["EventTimer", "create", "sees_too_little"]

IDLE_SLACK_NS = 100_000
"""Waiting for the device and recording once more."""


class EventTimer:
    """One event pair a call, and one event to check it."""

    def __init__(self, flush: L2Flush) -> None:
        import torch

        self._flush = flush
        self.flush_bytes = flush.nbytes
        # Bound here, before candidate code can replace them.
        self._synchronize = torch.cuda.synchronize
        self._start, self._end, self._idle = (
            torch.cuda.Event(enable_timing=True) for _ in range(3)
        )

    def flush(self) -> None:
        """Cold L2, then wait."""
        self._flush()

    def measure(self, call: Any) -> Sample:
        """Time between two events on the current stream."""
        self._start.record()
        call.run()
        self._end.record()
        call.seal()
        self._synchronize()
        self._idle.record()
        self._synchronize()
        ns = round(self._start.elapsed_time(self._end) * 1e6)
        idle_ns = round(self._start.elapsed_time(self._idle) * 1e6)
        return Sample(ns, {"idle_ns": idle_ns} if sees_too_little(ns, idle_ns) else {})


def sees_too_little(ns: int, idle_ns: int) -> bool:
    """Whether work on other streams went on for long after the span.

    Args:
        ns: between the events of the current stream.
        idle_ns: from the first of them until the whole device had nothing to do.
    """
    return idle_ns - ns > max(IDLE_SLACK_NS, ns // 2)


def create(
    *, cache: str, torch_device: str, l2_bytes: int | None, buffer: Any = None
) -> EventTimer:
    """A timer for any cache state."""
    return EventTimer(L2Flush(cache, torch_device, l2_bytes, buffer))
