"""Draws a chart as SVG: text stays text, colours come from the page, shapes tell series apart.

Thousands of points are one path each series, so a chart of ten thousand stays small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from .chart import Axis, Chart, Marker, Point, Series, limits, ticks

__all__ = ["WIDE", "Size", "draw", "marker_path"]


class Size(NamedTuple):
    """Of a drawing, in CSS pixels."""

    width: int
    height: int


WIDE = Size(880, 340)
NARROW = Size(340, 300)
ROW_HEIGHT = 34
"""Of one row of a chart with categories on the side."""
MANY = 200
"""Points of a series from which on they are drawn smaller."""
TEXT_PX = 6.6
"""About the width of a character of the chart's text."""


class _Frame(NamedTuple):
    """Where the plot is in the drawing, and how values become places."""

    size: Size
    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis
    x_span: tuple[float, float]
    y_span: tuple[float, float]

    def at_x(self, value: float) -> float:
        """Pixels from the left."""
        share = _share(self.x, self.x_span, value)
        return round(self.left + share * (self.right - self.left), 1)

    def at_y(self, value: float) -> float:
        """Pixels from the top; categories run downwards."""
        share = _share(self.y, self.y_span, value)
        if self.y.scale == "category":
            return round(self.top + share * (self.bottom - self.top), 1)
        return round(self.bottom - share * (self.bottom - self.top), 1)


def _share(axis: Axis, span: tuple[float, float], value: float) -> float:
    low, high = span
    if axis.scale == "log":
        low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
    return min(1.02, max(-0.02, (value - low) / (high - low)))


def draw(chart: Chart, prefix: str = "") -> str:
    """The chart twice, for wide and for narrow pages; the style sheet shows one of them.

    Args:
        chart: What.
        prefix: Makes ids unique in a page with several chapters.
    """
    name = f"{prefix}{chart.id}"
    return "".join(
        _draw(chart, size, f"{name}-{kind}", kind)
        for kind, size in (("wide", WIDE), ("narrow", NARROW))
    )


def _draw(chart: Chart, size: Size, name: str, kind: str) -> str:
    frame = _frame(chart, size)
    size = frame.size
    parts = [
        f'<svg class="chart {kind}" viewBox="0 0 {size.width} {size.height}" role="img" '
        f'width="{size.width}" height="{size.height}" data-frame="{_attributes(frame)}" '
        f'aria-labelledby="{name}-title {name}-text">',
        f'<title id="{name}-title">{escape(chart.title)}</title>',
        f'<desc id="{name}-text">{escape(chart.caption)}</desc>',
        *_grid(frame),
        *_marks(chart, frame),
        *(part for series in chart.series for part in _series(frame, series)),
        "</svg>",
    ]
    return "".join(parts)


def _frame(chart: Chart, size: Size) -> _Frame:
    xs = [point.x for series in chart.series for point in series.points]
    ys = [v for s in chart.series for p in s.points for v in (p.y, p.low, p.high) if v is not None]
    x_span, y_span = limits(chart.x, xs), limits(chart.y, ys)
    if chart.is_sideways:
        size = size._replace(height=82 + ROW_HEIGHT * len(chart.y.categories))
        longest = max(map(len, chart.y.categories), default=0)
        left = min(longest * TEXT_PX + 14, size.width * 0.45)
    else:
        longest = max((len(text) for _, text in ticks(chart.y, *y_span)), default=0)
        left = longest * TEXT_PX + 16
    return _Frame(
        size, left, 34.0, size.width - 14.0, size.height - 44.0, chart.x, chart.y, x_span, y_span
    )


def _attributes(frame: _Frame) -> str:
    """What a script needs to find values again: plot area, scales, spans."""
    numbers = [frame.left, frame.top, frame.right, frame.bottom, *frame.x_span, *frame.y_span]
    shown = " ".join(f"{number:.6g}" for number in numbers)
    return f"{shown} {frame.x.scale} {frame.y.scale}"


def _grid(frame: _Frame) -> Iterator[str]:
    across = (frame.right - frame.left) / 54
    longest = max(map(len, frame.x.categories), default=0)
    if longest:
        across = (frame.right - frame.left) / max(longest * TEXT_PX + 8, 20)
    for value, text in ticks(frame.x, *frame.x_span, most=int(across)):
        x = frame.at_x(value)
        if frame.x.scale != "category":
            yield f'<path class="grid" d="M{x} {frame.top}V{frame.bottom}"/>'
        yield f'<text class="tick" x="{x}" y="{frame.bottom + 18}" text-anchor="middle">'
        yield f"{escape(text)}</text>"
    rows = len(frame.y.categories) or 6
    for value, text in ticks(frame.y, *frame.y_span, most=rows):
        y = frame.at_y(value)
        yield f'<path class="grid" d="M{frame.left} {y}H{frame.right}"/>'
        yield f'<text class="tick" x="{frame.left - 8}" y="{y + 4}" text-anchor="end">'
        yield f"{escape(text)}</text>"
    middle = (frame.left + frame.right) / 2
    yield f'<text class="axis" x="{middle:.0f}" y="{frame.bottom + 38}" text-anchor="middle">'
    yield f"{escape(frame.x.title)}</text>"
    yield f'<text class="axis" x="0" y="14">{escape(frame.y.title)}</text>'


def _marks(chart: Chart, frame: _Frame) -> Iterator[str]:
    for mark in chart.marks:
        if mark.axis == "y":
            y = frame.at_y(mark.at)
            yield f'<path class="mark" d="M{frame.left} {y}H{frame.right}"/>'
            yield f'<text class="note" x="{frame.right}" y="{y - 5}" text-anchor="end">'
            yield f"{escape(mark.text)}</text>"
        else:
            x = frame.at_x(mark.at)
            room = int((frame.right - x) / TEXT_PX)
            text = mark.text if len(mark.text) <= room else f"{mark.text[: max(room - 1, 1)]}\u2026"
            yield f'<path class="mark" d="M{x} {frame.top}V{frame.bottom}"/>'
            yield f'<text class="note" x="{x + 4}" y="{frame.top - 6}">{escape(text)}'
            yield f"<title>{escape(mark.text)}</title></text>"


def _series(frame: _Frame, series: Series) -> Iterator[str]:
    points = [(frame.at_x(point.x), frame.at_y(point.y)) for point in series.points]
    if series.marker == "bar":
        yield from _bars(frame, series)
        return
    if series.line == "step":
        yield f'<path class="line step {series.role}" d="{_steps(points)}"/>'
    elif series.line != "none":
        middle = _medians(series.points)
        line = [(frame.at_x(x), frame.at_y(y)) for x, y in middle]
        yield f'<path class="line {series.line} {series.role}" d="{_lines(line)}"/>'
    if series.marker != "none":
        dense = len(points) > MANY
        path = "".join(marker_path(series.marker, x, y, 2.4 if dense else 4.0) for x, y in points)
        kind = f"{series.marker} {series.role}{' dense' if dense else ''}"
        yield f'<path class="points {kind}" d="{path}"/>'


def _bars(frame: _Frame, series: Series) -> Iterator[str]:
    step = (frame.right - frame.left) / max(len(frame.x.categories), 1)
    width = min(46.0, max(1.0, step * 0.62))
    base = frame.at_y(1.0)
    for point in series.points:
        x, y = frame.at_x(point.x), frame.at_y(point.y)
        top, height = min(y, base), abs(y - base)
        slow = " slow" if point.y < 1 else ""
        yield f'<rect class="bar {series.role}{slow}" x="{x - width / 2:.1f}" y="{top}" rx="2" '
        yield f'width="{width:.1f}" height="{max(height, 1):.1f}"/>'
        if point.low is not None and point.high is not None:
            yield f'<path class="whisker" d="M{x} {frame.at_y(point.low)}'
            yield f'V{frame.at_y(point.high)}"/>'
        if step > 34:
            highest = min(y, base, frame.at_y(point.high if point.high is not None else point.y))
            yield f'<text class="value" x="{x}" y="{highest - 6}" text-anchor="middle">'
            yield f"{point.y:.3g}\u00d7</text>"


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """Down at each place, then on: what holds from there."""
    (x, y), *rest = points
    return f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in rest)


def _lines(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    return f"M{x} {y}" + "".join(f"L{x} {y}" for x, y in rest)


def _medians(points: Sequence[Point]) -> list[tuple[float, float]]:
    """One place for each x: the middle of what is there."""
    by_x: dict[float, list[float]] = {}
    for point in points:
        by_x.setdefault(point.x, []).append(point.y)
    return [(x, sorted(ys)[len(ys) // 2]) for x, ys in sorted(by_x.items())]


def marker_path(marker: Marker, x: float, y: float, r: float = 4.0) -> str:
    """A shape around a place; dots are lines without a length and with round ends."""
    shapes: dict[Marker, Callable[[], str]] = {
        "circle": lambda: f"M{x} {y}h0",
        "square": lambda: f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        "diamond": lambda: f"M{x} {y - r - 1:.1f}l{r} {r + 1}l{-r} {r + 1}l{-r} {-r - 1}z",
        "triangle": lambda: f"M{x} {y - r:.1f}l{r} {2 * r - 1}h{-2 * r}z",
        "cross": lambda: f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
    }
    return shapes[marker]() if marker in shapes else ""
