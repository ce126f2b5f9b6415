"""The ratio of mean latencies from paired blocks, its interval, and what it decides.

The statistic is ``mean over workloads of B's latency / mean over workloads of A's``. Its
interval is a bootstrap over paired blocks within each workload; a block stays a pair, so
drift that both solutions share cancels. ``n - 1`` blocks are drawn out of ``n`` (the
rescaled bootstrap of Rao and Wu, 1988): the plain one understates the variance of a mean
of few blocks. Percentiles of few blocks are too short in the tails as well, so both sides
are stretched by the quotient of Student's and the normal quantile, with the effective
degrees of freedom of Welch and Satterthwaite. They are stretched as logarithms: a ratio is
as uncertain upwards as downwards, and never negative.

Pure numpy; the same samples give the same interval, since the seed is a hash of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kopt_harness.schema import ComparisonDecision, PairedBlock

__all__ = ["RatioInterval", "decide", "look_confidence", "ratio_interval", "spread"]

RESAMPLES = 4000

_Array = NDArray[np.float64]


class RatioInterval(NamedTuple):
    """A ratio with a two-sided interval."""

    ratio: float
    lo: float
    hi: float


def block_medians(blocks: Sequence[PairedBlock]) -> tuple[_Array, _Array]:
    """Median of A and of B in each block, in nanoseconds, at least 1; shapes (n,) and (n,)."""
    a = np.array([median(block.a_ns) for block in blocks], dtype=np.float64)
    b = np.array([median(block.b_ns) for block in blocks], dtype=np.float64)
    return np.maximum(a, 1.0), np.maximum(b, 1.0)


def ratio_interval(workloads: Sequence[Sequence[PairedBlock]], confidence: float) -> RatioInterval:
    """Ratio of mean latencies over workloads.

    Args:
        workloads: Paired blocks of each workload, at least two of each.
        confidence: Two-sided, 0 to 1.

    Raises:
        ValueError: no workload, or a workload with fewer than two blocks.
    """
    if not workloads or any(len(blocks) < 2 for blocks in workloads):
        raise ValueError("a ratio needs at least two paired blocks of each workload")
    medians = [block_medians(blocks) for blocks in workloads]
    rng = np.random.default_rng(_seed(medians))
    a_sum = np.zeros(RESAMPLES)
    b_sum = np.zeros(RESAMPLES)
    for a, b in medians:
        n = len(a)
        drawn = rng.integers(0, n, size=(RESAMPLES, n - 1))
        a_sum += a[drawn].mean(axis=1)
        b_sum += b[drawn].mean(axis=1)
    ratio = sum(float(b.mean()) for _, b in medians) / sum(float(a.mean()) for a, _ in medians)
    tail = (1 - confidence) / 2
    lo, hi = np.quantile(b_sum / a_sum, [tail, 1 - tail])
    stretch = _stretch(_freedom(medians, ratio), confidence)
    return RatioInterval(
        ratio, ratio * (float(lo) / ratio) ** stretch, ratio * (float(hi) / ratio) ** stretch
    )


def look_confidence(confidence: float, look: int) -> float:
    """Confidence at the ``look``-th look at growing data, counted from 1.

    The error is spent as ``alpha / (k (k + 1))``, which sums to ``alpha`` over any number
    of looks, so that sampling more where a decision is open does not inflate it.
    """
    return 1 - (1 - confidence) / (look * (look + 1))


def decide(interval: RatioInterval, margin: float) -> ComparisonDecision:
    """``faster`` means that B is faster than A by more than the margin."""
    if interval.hi < 1 - margin:
        return "faster"
    if interval.lo > 1 + margin:
        return "slower"
    if interval.lo >= 1 - margin and interval.hi <= 1 + margin:
        return "same"
    return "ambiguous"


def spread(workloads: Sequence[Sequence[PairedBlock]], ratio: float) -> list[float]:
    """Each workload's contribution to the variance of the ratio, in ns²."""
    contributions = []
    for blocks in workloads:
        a, b = block_medians(blocks)
        residual = b - ratio * a
        contributions.append(float(residual.var(ddof=1)) / len(blocks))
    return contributions


def _freedom(medians: Sequence[tuple[_Array, _Array]], ratio: float) -> float:
    """Effective degrees of freedom of the sum of the workloads' mean residuals."""
    total, squares = 0.0, 0.0
    for a, b in medians:
        variance = float((b - ratio * a).var(ddof=1)) / len(a)
        total += variance
        squares += variance**2 / (len(a) - 1)
    return total**2 / squares if squares else 1e9


def _stretch(freedom: float, confidence: float) -> float:
    """Student's over the normal quantile (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    f = max(freedom, 1.0)
    t = z + (z**3 + z) / (4 * f) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * f**3)
    return t / z


def _seed(medians: Sequence[tuple[_Array, _Array]]) -> int:
    digest = hashlib.sha256()
    for a, b in medians:
        digest.update(a.tobytes() + b"|" + b.tobytes() + b";")
    return int.from_bytes(digest.digest()[:8], "little")
