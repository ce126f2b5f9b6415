"""A timing, and everything that must travel with it."""

from __future__ import annotations

from itertools import accumulate
from math import log, sqrt
from statistics import median
from typing import Any, Literal

from ._base import Model

Timer = str
"""Name of a module of ``kopt_harness.bench.timers``."""
CacheState = Literal["cold", "cold-clean", "warm"]

MIN_SAMPLES_MEDIAN = 3
MIN_SAMPLES_P95 = 20
_SEPARATION = 5.0


class Timing(Model):
    """Samples of one solution on one workload."""

    timer: Timer
    estimator: Literal["median"] = "median"
    cache: CacheState
    samples_ns: tuple[int, ...]
    """In the order in which they were taken."""
    flush_bytes: int = 0
    """Written before each call; 0 when warm."""
    reason: str = ""
    """Why there are no samples; empty where there are."""
    conditions: dict[str, Any] = {}
    """Clocks, temperature, throttle reasons, GPU UUID, where they can be read."""

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.samples_ns)

    @property
    def median_us(self) -> float | None:
        """Median in microseconds; None below three samples."""
        if self.n < MIN_SAMPLES_MEDIAN:
            return None
        return median(self.samples_ns) / 1e3

    @property
    def p95_us(self) -> float | None:
        """Nearest-rank 95th percentile in microseconds; None below twenty samples."""
        if self.n < MIN_SAMPLES_P95:
            return None
        return sorted(self.samples_ns)[-(-self.n * 95 // 100) - 1] / 1e3

    @property
    def modes(self) -> int | None:
        """Into how many separate groups the samples fall, 1 or 2; None below twenty samples.

        Two where the best division leaves at least a tenth on each side, and the means lie
        apart by a tenth of the smaller and by ``_SEPARATION`` (Ashman's D, of logarithms; a
        normal distribution that is cut in its middle has 2.7, an even one 3.5).
        """
        if self.n < MIN_SAMPLES_P95:
            return None
        logs = sorted(log(max(ns, 1)) for ns in self.samples_ns)
        sums = [0.0, *accumulate(logs)]
        squares = [0.0, *accumulate(x * x for x in logs)]

        def scatter(start: int, end: int) -> float:
            total = sums[end] - sums[start]
            return max(0.0, squares[end] - squares[start] - total**2 / (end - start))

        least = -(-self.n // 10)
        cuts = range(least, self.n - least + 1)
        cut = min(cuts, key=lambda c: scatter(0, c) + scatter(c, self.n))
        distance = (sums[-1] - sums[cut]) / (self.n - cut) - sums[cut] / cut
        spread = sqrt((scatter(0, cut) / cut + scatter(cut, self.n) / (self.n - cut)) / 2)
        return 2 if distance > max(log(1.1), _SEPARATION * spread) else 1

    def document(self) -> dict[str, Any]:
        """The JSON form, with the estimates or the reason why there are none."""
        data = self.model_dump(mode="json")
        data |= {"n": self.n, "median_us": self.median_us, "p95_us": self.p95_us}
        data["modes"] = self.modes
        if self.median_us is None and not self.reason:
            data["reason"] = f"{self.n} samples, at least {MIN_SAMPLES_MEDIAN} needed"
        elif not self.reason:
            del data["reason"]
        return data
