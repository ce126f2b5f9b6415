"""Numbers as people read them: the same in the page, in Markdown and in figures."""

from __future__ import annotations

from ..shown import ratio_text

__all__ = ["interval", "moment", "percent", "speedup", "us", "value"]


def value(number: float | None, digits: int = 3) -> str:
    """A plain number with some significant digits; a dash where there is none."""
    if number is None:
        return "-"
    if number != 0 and not 1e-4 <= abs(number) < 1e9:
        return f"{number:.{digits}g}"
    whole = len(str(int(abs(number)))) if abs(number) >= 1 else 0
    return f"{number:,.{max(0, digits - whole)}f}" if whole else f"{number:.{digits}g}"


def us(number: float | None) -> str:
    """A time given in microseconds, in the unit in which it is short."""
    if number is None:
        return "-"
    if abs(number) >= 1e6:
        return f"{value(number / 1e6, 4)} s"
    if abs(number) >= 1e4:
        return f"{value(number / 1e3, 4)} ms"
    return f"{value(number, 4)} us"


def interval(ratio: float | None, ci: tuple[float, float] | None) -> str:
    """A ratio with its interval; what is too wide to say anything is called so."""
    if ratio is None:
        return "-"
    return ratio_text(ratio, ci, 3 if ratio >= 0.1 else 4)


def speedup(ratio: float | None) -> str:
    """What a ratio of times means in words."""
    if not ratio:
        return "-"
    return f"{value(1 / ratio)}\u00d7"


def percent(share: float | None) -> str:
    """A share of 0 to 1."""
    return "-" if share is None else f"{share:.0%}"


def moment(time: str) -> str:
    """An ISO time to the minute, with its zone."""
    if len(time) < 16:
        return time or "-"
    zone = "UTC" if time.endswith(("+00:00", "Z")) else time[19:].lstrip(".0123456789")
    return f"{time[:10]} {time[11:16]} {zone}".rstrip()
