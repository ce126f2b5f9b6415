"""Wall time of a call by the monotonic clock, after the judge has evicted caches by writing.

The judge does it, on the processors that the solution has used: a buffer in the solution's
own process could be exchanged for a smaller one. ``cold`` writes twice the last-level cache,
but at most ``MAX_FLUSH_BYTES``: virtual machines report the host's last-level cache (hundreds
of MB, shared with other guests), and writing twice that for each call would take longer than
the call. Above the cap the private caches are evicted and the last-level cache partly; the
bytes written are recorded.
"""

from __future__ import annotations

import time
from typing import Any

from kopt_harness.bench.timers import Sample
from kopt_harness.errors import UnavailableError

__all__ = ["MAX_FLUSH_BYTES", "CpuTimer", "create"]

MAX_FLUSH_BYTES = 64 << 20
_CLOCK_NS = time.perf_counter_ns


class CpuTimer:
    """Made, and its clock bound, before candidate code is loaded."""

    def __init__(self, flush_bytes: int) -> None:
        self.flush_bytes = flush_bytes

    def flush(self) -> None:
        """Nothing: see above."""

    def measure(self, call: Any) -> Sample:
        """Wall time of ``call.run()``."""
        run = call.run
        start_ns = _CLOCK_NS()
        run()
        span_ns = _CLOCK_NS() - start_ns
        call.seal()
        return Sample(span_ns, {})


def create(*, cache: str, torch_device: str, l2_bytes: int | None) -> CpuTimer:
    """A timer for ``cold`` or ``warm``."""
    if torch_device != "cpu":
        # A call returns before the device has done its work; its wall time means nothing.
        raise UnavailableError("the cpu timer cannot time a GPU", hint="use cupti")
    if cache == "warm":
        return CpuTimer(0)
    if cache != "cold":
        raise UnavailableError(
            f"the cpu timer has no cache state {cache!r}", hint="use cold or warm"
        )
    return CpuTimer(min(2 * (l2_bytes or MAX_FLUSH_BYTES), MAX_FLUSH_BYTES))
