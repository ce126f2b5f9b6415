"""CUDA events around the call, by explicit choice only.

Includes gaps between launches and sees only the current stream; use ``cupti`` to judge.
"""

from __future__ import annotations

from typing import Any

from kopt_harness.bench.timers import Sample

from ._flush import L2Flush

__all__ = ["EventTimer", "create"]


class EventTimer:
    """One event pair a call."""

    def __init__(self, flush: L2Flush) -> None:
        import torch

        self._flush = flush
        self.flush_bytes = flush.nbytes
        self._torch: Any = torch
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def flush(self) -> None:
        """Cold L2, then wait."""
        self._flush()

    def measure(self, call: Any) -> Sample:
        """Time between two events on the current stream."""
        self._start.record()
        call.run()
        self._end.record()
        self._torch.cuda.synchronize()
        return Sample(round(self._start.elapsed_time(self._end) * 1e6), {})


def create(*, cache: str, torch_device: str, l2_bytes: int | None) -> EventTimer:
    """A timer for any cache state."""
    return EventTimer(L2Flush(cache, torch_device, l2_bytes))
