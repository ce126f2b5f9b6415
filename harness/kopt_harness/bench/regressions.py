"""Which workloads are slower: one-sided tests of each, corrected by Holm for their number.

A candidate may be faster on average and slower where it matters to somebody. Of 54 workloads
of a solution that is no slower on any, an uncorrected test at 5 % finds nearly three; Holm's
procedure finds one or more in at most 5 % of sweeps, whatever their dependence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .stats import FEW_BLOCKS_FACTOR, MIN_FREEDOM, Levels, evidence_of
from .student import student_tail

__all__ = ["ERROR", "Regression", "Secondary", "holm", "regressions", "secondary"]

ERROR = 0.05
"""Of calling any workload slower that is not."""


class Regression(NamedTuple):
    """The test of one workload against "B is not slower by more than the margin"."""

    ratio: float
    p: float
    """Probability of so large a ratio, or a larger one, were B slower by the margin. With few
    blocks, by a factor of two: see ``stats``."""
    adjusted_p: float
    """Corrected for the number of workloads."""
    slower: bool
    """``adjusted_p`` is below the error."""
    plain_p: float
    """As ``p``, however few blocks: says where to look closer, and decides nothing."""


class Secondary(NamedTuple):
    """Figures beside the ratio of means; below 1, B is faster.

    Workloads of one shape differ in their inputs alone: the ratio of each is the geometric mean
    over all of them. Else the worst of many equal ones would be the noise of one.
    """

    median_ratio: float
    """Median over workloads of B / A."""
    p95_ratio: float
    """95th percentile over workloads of B / A, the higher of two neighbours: all but the worst
    twentieth are no higher."""
    worst_ratio: float
    """Largest over workloads."""
    regimes: Mapping[str, float]
    """Ratio of mean latencies of each regime."""

    @property
    def worst_regime(self) -> str:
        """The regime with the largest ratio; the first of equals."""
        return max(self.regimes, key=lambda name: self.regimes[name])

    @property
    def worst_regime_ratio(self) -> float:
        """Its ratio."""
        return self.regimes[self.worst_regime]

    def fields(self) -> dict[str, Any]:
        """As ``schema.SecondaryRatios`` calls them."""
        return {
            "median": self.median_ratio,
            "p95": self.p95_ratio,
            "worst": self.worst_ratio,
            "regimes": dict(self.regimes),
            "worst_regime": self.worst_regime,
            "worst_regime_ratio": self.worst_regime_ratio,
        }


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of Holm's step-down procedure, in the order given."""
    count = len(p_values)
    adjusted = [1.0] * count
    largest = 0.0
    for rank, position in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (count - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted


def regressions(workloads: Sequence[Levels], margin: float) -> list[Regression]:
    """Tests each workload.

    Args:
        workloads: at least two blocks of each.
        margin: B is slower beyond 1 / (1 - margin).
    """
    ratios, plain, guarded = [], [], []
    for levels in workloads:
        evidence = evidence_of(levels)
        deviation = math.sqrt(evidence.variance)
        limit = -math.log1p(-margin)
        few = math.log(FEW_BLOCKS_FACTOR) if evidence.freedom < MIN_FREEDOM else 0.0
        ratios.append(math.exp(evidence.log_ratio))
        plain.append(_tail(evidence.log_ratio - limit, deviation, evidence.freedom))
        guarded.append(_tail(evidence.log_ratio - limit - few, deviation, evidence.freedom))
    return [
        Regression(ratio, p, adjusted, adjusted < ERROR, unguarded)
        for ratio, p, adjusted, unguarded in zip(ratios, guarded, holm(guarded), plain, strict=True)
    ]


def secondary(
    workloads: Sequence[Levels], regimes: Sequence[str], shapes: Sequence[Hashable]
) -> Secondary:
    """Figures beside the ratio of means.

    Args:
        workloads: at least two blocks of each.
        regimes: name of each workload's.
        shapes: of each workload; equal ones are pooled.
    """
    evidence = [evidence_of(levels) for levels in workloads]
    alike: dict[Hashable, list[float]] = {}
    for each, shape in zip(evidence, shapes, strict=True):
        alike.setdefault(shape, []).append(each.log_ratio)
    ratios = np.exp([float(np.mean(alike[shape])) for shape in shapes])
    sums: dict[str, list[float]] = {name: [0.0, 0.0] for name in regimes}
    for each, name in zip(evidence, regimes, strict=True):
        sums[name][0] += each.level_ns * math.exp(-each.log_ratio / 2)
        sums[name][1] += each.level_ns * math.exp(each.log_ratio / 2)
    return Secondary(
        median_ratio=float(np.median(ratios)),
        p95_ratio=float(np.quantile(ratios, 0.95, method="higher")),
        worst_ratio=float(ratios.max()),
        regimes={name: b / a for name, (a, b) in sums.items()},
    )


def _tail(excess: float, deviation: float, freedom: float) -> float:
    """Student's tail of an excess over its standard deviation, which may be zero."""
    if deviation == 0.0:
        return 1.0 if excess <= 0 else 0.0
    return student_tail(excess / deviation, freedom)
