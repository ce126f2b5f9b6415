"""Means, medians and percentiles over workloads, each under the name of its definition.

Two 95th percentiles are in use, and differ by one place in a short list. ``nearest_rank`` is the
smallest value with at least 95 % of the values at or below it: what kopt reports. ``nearest_place``
is the value at the rounded place ``0.95 (n - 1)``: what the result files that contest teams
keep state as their P95. With 54 workloads the one is the third largest and the other the fourth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

__all__ = ["Estimates", "estimates", "nearest_place", "nearest_rank"]

_P = 0.95


class Estimates(NamedTuple):
    """Of one list of positive numbers; null of an empty one."""

    n: int
    mean: float | None
    median: float | None
    p95_rank: float | None
    """By ``nearest_rank``."""
    p95_place: float | None
    """By ``nearest_place``."""
    least: float | None
    most: float | None


def estimates(values: Sequence[float]) -> Estimates:
    """All of them at once."""
    if not values:
        return Estimates(0, None, None, None, None, None, None)
    ordered = sorted(values)
    return Estimates(
        len(ordered),
        fmean(ordered),
        median(ordered),
        nearest_rank(ordered),
        nearest_place(ordered),
        ordered[0],
        ordered[-1],
    )


def nearest_rank(ordered: Sequence[float], share: float = _P) -> float:
    """The smallest value with at least this share of the values at or below it.

    Args:
        ordered: Smallest first; at least one.
        share: 0 to 1.
    """
    # A product like 0.95 * 100 may come out above 95, and would then be one rank too high.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def nearest_place(ordered: Sequence[float], share: float = _P) -> float:
    """The value at the rounded place ``share * (n - 1)``, counted from 0.

    Args:
        ordered: Smallest first; at least one.
        share: 0 to 1.
    """
    return ordered[round(share * (len(ordered) - 1))]
