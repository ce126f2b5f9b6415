"""What a figure shows, without how it is drawn: axes, series, marks.

One ``Chart`` is drawn as SVG for the page (``svg.py``), by plotly for looking closer
(``interactive.py``) and by matplotlib for papers (``paper.py``), so the three cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

__all__ = ["Axis", "Chart", "Mark", "Marker", "Point", "Role", "Scale", "Series", "limits", "ticks"]

Scale = Literal["linear", "log", "category"]
Marker = Literal["circle", "square", "diamond", "triangle", "cross", "bar", "none"]
Role = Literal["candidate", "incumbent", "baseline", "floor", "good", "poor", "muted"]
"""What a colour stands for; each role also has a shape or a dash of its own."""


class Axis(NamedTuple):
    """One direction of a chart."""

    title: str
    """With the unit."""
    scale: Scale = "linear"
    categories: tuple[str, ...] = ()
    """Names of the places 0, 1, ... of a category axis."""
    include: tuple[float, ...] = ()
    """Values that must be in view."""
    is_whole: bool = False
    """Whether only whole numbers mean something."""


class Point(NamedTuple):
    """One place, with its interval where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    """For whoever points at it."""


class Series(NamedTuple):
    """Points that belong together."""

    name: str
    role: Role
    points: tuple[Point, ...]
    marker: Marker = "circle"
    line: Literal["none", "solid", "dashed", "dotted", "step"] = "none"


class Mark(NamedTuple):
    """A line across the chart at one value."""

    at: float
    text: str
    axis: Literal["x", "y"] = "x"


class Chart(NamedTuple):
    """One figure."""

    id: str
    title: str
    caption: str
    """What is seen, in sentences: caption and alternative text."""
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    is_sideways: bool = False
    """Whether the categories are on the y axis, one row each."""


def limits(axis: Axis, values: Iterable[float]) -> tuple[float, float]:
    """The span of an axis that shows all values, with room at the ends."""
    if axis.scale == "category":
        return (-0.5, len(axis.categories) - 0.5)
    known = [value for value in (*values, *axis.include) if math.isfinite(value)]
    if axis.scale == "log":
        positive = [value for value in known if value > 0] or [1.0]
        low, high = math.log10(min(positive)), math.log10(max(positive))
        room = max(0.04 * (high - low), 0.06)
        return (10 ** (low - room), 10 ** (high + room))
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = 0.04 * (high - low) or 0.5
    return (low - room, high + room)


def ticks(axis: Axis, low: float, high: float, most: int = 7) -> list[tuple[float, str]]:
    """Places and texts of the ticks of an axis.

    Args:
        axis: Which.
        low: Where it begins.
        high: Where it ends.
        most: About so many.
    """
    if axis.scale == "category":
        step = -(-len(axis.categories) // max(most, 1))
        return [(float(i), axis.categories[i]) for i in range(0, len(axis.categories), step)]
    if axis.scale == "log":
        return _log_ticks(low, high, most)
    gap = _nice((high - low) / max(most, 1))
    gap = max(gap, 1.0) if axis.is_whole else gap
    first = math.ceil(low / gap - 1e-9)
    places = [n * gap for n in range(first, math.floor(high / gap + 1e-9) + 1)]
    return [(place, _text(place)) for place in places]


_DIGITS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 2, 3, 4, 5, 6, 8),
    tuple(each / 20 for each in range(20, 200)),
)
"""First digits of ticks on a log scale, from few to many."""


def _log_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in _DIGITS:
        places = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = [place for place in places if low <= place <= high]
        if found and len(inside) > most:
            break
        found = inside
    step = -(-len(found) // max(most, 1)) if found else 1
    return [(place, _text(place)) for place in found[::step]]


def _nice(step: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= step * 0.999)


def _text(value: float) -> str:
    """As short as it can be said; thousands with a thin space."""
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-4:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    rounded = float(f"{value:.6g}")
    if rounded == int(rounded):
        return f"{int(rounded):,}".replace(",", "\u2009")
    return f"{rounded:g}"
