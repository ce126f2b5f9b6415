"""Student's distribution: tail probability and quantile, for any number of degrees of freedom.

Intervals of few blocks live far out in its tails (t = 22 for two degrees of freedom and a
tail of 1 in 1000), where expansions around the normal distribution are wrong by a factor.
The tail is the regularised incomplete beta function, by its continued fraction.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["normal_quantile", "student_quantile", "student_tail"]

_TINY = 1e-300
_CLOSE = 1e-15
_TERMS = 10_000
_BISECTIONS = 200
_LARGE = 1e7
"""Degrees of freedom from which Student's is the normal distribution."""


def student_tail(t: float, freedom: float) -> float:
    """Probability that Student's variable exceeds ``t``.

    Args:
        t: any number; infinities too.
        freedom: degrees of freedom, above 0; need not be whole.

    Raises:
        ValueError: no degrees of freedom.
    """
    if not freedom > 0:
        raise ValueError(f"Student's distribution has no {freedom!r} degrees of freedom")
    if freedom >= _LARGE:
        return math.erfc(t / math.sqrt(2)) / 2
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    both = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t), t * t)
    return both / 2 if t >= 0 else 1 - both / 2


@lru_cache(maxsize=65536)
def student_quantile(probability: float, freedom: float) -> float:
    """The value that Student's variable stays below with ``probability``.

    Raises:
        ValueError: a probability that is not between 0 and 1, or no degrees of freedom.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"no quantile at probability {probability!r}")
    tail = min(probability, 1 - probability)
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if student_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
        if high - low <= _CLOSE * high:
            break
    return high if probability > 0.5 else -high


def normal_quantile(probability: float) -> float:
    """The same of the normal distribution."""
    return student_quantile(probability, math.inf)


def _incomplete_beta(a: float, b: float, x: float, square: float) -> float:
    """Regularised, at x = a2 / (a2 + square); ``square`` keeps 1 - x exact where x is near 1."""
    rest = square / (2 * a + square)
    if x <= 0.0:
        return 0.0
    if rest <= 0.0:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, rest) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, _away(1 - (a + b) * x / (a + 1))
    d = 1 / d
    result = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / _away(1 + step * d)
            c = _away(1 + step / c)
            result *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return result


def _away(value: float) -> float:
    """The value, kept from zero."""
    return value if abs(value) > _TINY else _TINY
