"""Numbers for people: ratios with their intervals, and counts; documents keep the numbers."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["VAGUE", "bracketed", "counted", "ratio_text"]

VAGUE = 20.0
"""An interval whose ends are farther apart than this factor is not spelt out but called wide."""


def bracketed(ci: Sequence[float], digits: int = 3) -> str:
    """An interval of a ratio; what is too wide to say anything is called so.

    Args:
        ci: Both ends, the lower one first.
        digits: Behind the point.
    """
    low, high = ci
    if low <= 0 or high / low > VAGUE:
        return "[wide]"
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def counted(number: int, noun: str) -> str:
    """A number of things.

    Args:
        number: How many.
        noun: For one of them.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ratio_text(ratio: float, ci: Sequence[float] | None, digits: int = 3) -> str:
    """A ratio, with its interval where it has one.

    Args:
        ratio: Of times.
        ci: Both ends of its interval.
        digits: Behind the point.
    """
    return f"{ratio:.{digits}f}" + ("" if ci is None else f" {bracketed(ci, digits)}")
