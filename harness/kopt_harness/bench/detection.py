"""What a number of trials can say of a fault that shows only now and then.

A trial is one draw of inputs, fully compared. If a solution is wrong on a share ``p`` of
such draws, independent of each other, ``n`` trials show it with probability 1 - (1 - p)^n.
The other way round, ``k`` failures in ``n`` trials exclude every p above the Clopper-Pearson
bound: the share at which so few failures would be seen in one of twenty such runs. It is
exact for every n, where approximations by a normal distribution fail at k = 0. Both are
statements about the mix of generators and sizes that was drawn from, and about no other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "STATED_RATE",
    "TABLE_RATES",
    "Detection",
    "detection_probability",
    "detection_table",
    "failure_rate_upper",
    "trials_needed",
]

STATED_RATE = 0.01
"""The share of failing draws that a single detection probability is stated for."""

TABLE_RATES = (0.001, 0.01, 0.015, 0.05)
"""Shares that are shown beside each other; a missing barrier was seen to fail 1.5 %."""

_BISECTIONS = 80
"""Halvings of [0, 1]: more than a float can resolve."""


class Detection(NamedTuple):
    """One line of the table."""

    rate: float
    """Share of draws on which a solution is wrong."""
    probability: float
    """That the trials show it."""


def detection_probability(rate: float, trials: int) -> float:
    """Probability that ``trials`` independent trials meet at least one failure.

    Args:
        rate: share of draws on which the solution is wrong, 0 to 1.
        trials: how many.

    Raises:
        ValueError: If the rate is no share, or the number is negative.
    """
    _require(rate, trials)
    if rate == 1.0:
        return 1.0 if trials else 0.0
    return -math.expm1(trials * math.log1p(-rate))


def detection_table(trials: int) -> tuple[Detection, ...]:
    """The probability for each of ``TABLE_RATES``."""
    return tuple(Detection(rate, detection_probability(rate, trials)) for rate in TABLE_RATES)


def trials_needed(rate: float, probability: float) -> int:
    """The least number of trials that show a fault of ``rate`` with ``probability``.

    Raises:
        ValueError: If no finite number does, or an argument is no share.
    """
    _require(rate, 0)
    if rate == 0.0 or not 0.0 <= probability < 1.0:
        raise ValueError(f"no number of trials shows a rate of {rate!r} with {probability!r}")
    if rate == 1.0:
        return 1 if probability > 0.0 else 0
    guess = max(0, math.ceil(math.log1p(-probability) / math.log1p(-rate)) - 1)
    while detection_probability(rate, guess) < probability:
        guess += 1
    return guess


def failure_rate_upper(trials: int, failures: int, confidence: float = 0.95) -> float:
    """The one-sided Clopper-Pearson bound on the share of failing draws.

    The largest rate at which at most ``failures`` in ``trials`` still has a probability of
    1 - ``confidence``; without failures 1 - (1 - confidence)^(1 / trials). No trials exclude
    nothing: 1.

    Args:
        trials: independent draws.
        failures: of them, 0 to ``trials``.
        confidence: above 0, below 1.

    Raises:
        ValueError: If the arguments are none of these.
    """
    if not 0 <= failures <= trials or not 0.0 < confidence < 1.0:
        raise ValueError(f"no bound for {failures!r} of {trials!r} at {confidence!r}")
    if failures == trials:
        return 1.0
    if failures == 0:
        return -math.expm1(math.log1p(-confidence) / trials)
    low, high = failures / trials, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _at_most(failures, trials, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(failures: int, trials: int, rate: float) -> float:
    """Probability of at most ``failures`` in ``trials``, in logarithms against underflow."""
    if rate >= 1.0:
        return 0.0
    hit, miss = math.log(rate), math.log1p(-rate)
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * hit
        + (trials - k) * miss
        for k in range(failures + 1)
    ]
    largest = max(logs)
    return math.exp(largest) * math.fsum(math.exp(log - largest) for log in logs)


def _require(rate: float, trials: int) -> None:
    if not 0.0 <= rate <= 1.0 or trials < 0:
        raise ValueError(f"no share of {trials!r} trials: {rate!r}")
