"""Effects out of results: means over seeds of log ratios, with intervals.

A result is the time of what a campaign has found over that of the start, measured once more and
independently. Arms are compared seed by seed. An interval is the wider of Student's and a
bootstrap over seeds, on either side, and is widened by the intervals of the measurements that
stand behind it: seeds that end at the same program agree on its error as well.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kopt_harness.bench.student import student_quantile

from .design import FULL, GOAL, Arm, Plan, Scope, arm_of

__all__ = ["CONFIDENCE", "Effect", "Estimate", "Result", "effects_of", "interval", "level_of"]

CONFIDENCE = 0.95
RESAMPLES = 4000


class Result(NamedTuple):
    """What one campaign came to, as measured afterwards."""

    sha256: str
    name: str
    ratio: float
    """Over the start, on the workloads of its scope; 1 where what it found was not right."""
    ci: tuple[float, float]
    evaluations: int
    """Candidates that its gates have judged."""
    single_ratio: float | None = None
    """On the single workload alone."""
    single_ci: tuple[float, float] | None = None
    is_right: bool = True

    @property
    def error(self) -> float:
        """Half of the interval, in logarithms."""
        return _half(self.ci)

    @property
    def on_single(self) -> tuple[float, float] | None:
        """Log ratio and half interval on the single workload."""
        if self.single_ratio is None or self.single_ci is None:
            return None
        return math.log(self.single_ratio), _half(self.single_ci)


class Estimate(NamedTuple):
    """A ratio with its interval."""

    ratio: float
    lo: float
    hi: float
    n: int
    """Seeds."""


class Effect(NamedTuple):
    """What a change does to the time that is reached; below 1 is faster."""

    name: str
    of: str
    """Arm or scope in which it is seen."""
    estimate: Estimate | None
    """Null where it does not apply, or no seed has both sides."""


Results = Mapping[tuple[Scope, Arm], Mapping[int, Result]]
"""By scope and arm, then by seed."""


def _half(ci: tuple[float, float]) -> float:
    return (math.log(ci[1]) - math.log(ci[0])) / 2


def interval(logs: Sequence[float], errors: Sequence[float] = ()) -> Estimate | None:
    """The mean of log ratios over seeds, as a ratio with its interval; None of fewer than two.

    Args:
        logs: One for each seed.
        errors: Half intervals of the measurements behind them.
    """
    n = len(logs)
    if n < 2:
        return None
    middle = statistics.fmean(logs)
    quantile = student_quantile((1 + CONFIDENCE) / 2, n - 1)
    half = quantile * statistics.stdev(logs) / math.sqrt(n)
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(logs, k=n)) for _ in range(RESAMPLES))
    tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    low = max(half, middle - means[tail])
    high = max(half, means[-1 - tail] - middle)
    error = math.sqrt(statistics.fmean(each**2 for each in errors)) if errors else 0.0
    return Estimate(
        math.exp(middle),
        math.exp(middle - math.hypot(low, error)),
        math.exp(middle + math.hypot(high, error)),
        n,
    )


def level_of(results: Mapping[int, Result]) -> Estimate | None:
    """What an arm reaches in one scope, over its seeds."""
    found = list(results.values())
    return interval([math.log(each.ratio) for each in found], [each.error for each in found])


def effects_of(plan: Plan, results: Results) -> tuple[Effect, ...]:
    """The effects of the harness, of each mechanism and of the scope.

    Args:
        plan: What was run.
        results: What came of it.
    """
    found = []
    for scope in ("single", "whole"):
        found.append(Effect("harness", scope, _between(results, scope, FULL, GOAL)))
        found += [
            Effect(arm_of(each), scope, _between(results, scope, arm_of(each), GOAL))
            for each in plan.mechanisms
        ]
    for arm in plan.arms:
        found.append(Effect("scope", arm, _scope(results, arm)))
    return tuple(found)


def _between(results: Results, scope: Scope, arm: Arm, base: Arm) -> Estimate | None:
    """One arm over another in the same scope."""
    mine, theirs = results.get((scope, arm), {}), results.get((scope, base), {})
    logs, errors = [], []
    for seed in sorted(mine.keys() & theirs.keys()):
        a, b = mine[seed], theirs[seed]
        is_same = a.sha256 == b.sha256
        logs.append(0.0 if is_same else math.log(a.ratio) - math.log(b.ratio))
        errors.append(0.0 if is_same else math.hypot(a.error, b.error))
    return interval(logs, errors)


def _scope(results: Results, arm: Arm) -> Estimate | None:
    """On the single workload: what was found for it alone over what was found for all."""
    alone, whole = results.get(("single", arm), {}), results.get(("whole", arm), {})
    logs, errors = [], []
    for seed in sorted(alone.keys() & whole.keys()):
        a, b = alone[seed], whole[seed]
        if a.sha256 == b.sha256:
            logs.append(0.0)
            errors.append(0.0)
            continue
        mine, theirs = a.on_single, b.on_single
        if mine is None or theirs is None:
            continue
        logs.append(mine[0] - theirs[0])
        errors.append(math.hypot(mine[1], theirs[1]))
    return interval(logs, errors)
