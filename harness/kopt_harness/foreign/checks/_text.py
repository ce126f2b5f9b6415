"""How findings write numbers."""

from __future__ import annotations

__all__ = ["factor", "ms", "percent", "plural", "some"]


def ms(value: float) -> str:
    """A time in the unit in which it is read most easily."""
    return f"{value * 1e3:.4g} us" if value < 1 else f"{value:.4g} ms"


def percent(share: float) -> str:
    """A share in per cent with two digits that count."""
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def factor(value: float) -> str:
    """A ratio with three digits that count."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def plural(count: int, one: str) -> str:
    """The count with its noun."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def some(names: list[str], most: int = 3) -> str:
    """The first few of a list."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")
