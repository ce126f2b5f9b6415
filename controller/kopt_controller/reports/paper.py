"""Figures for papers: the same charts, drawn by matplotlib as PDF and SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chart import Chart, Role, Series, limits, ticks
from .edition import Edition
from .extras import load
from .figures import figures_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_figures"]

INCHES = (6.4, 3.2)
COLOURS: dict[Role, str] = {
    "candidate": "#0a6b66",
    "incumbent": "#6b7480",
    "baseline": "#8a6d1f",
    "floor": "#1b1f23",
    "good": "#0a6b66",
    "poor": "#a8371f",
    "muted": "#6b7480",
}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "x"}
LINES = {"solid": "-", "dashed": "--", "dotted": ":", "step": "-"}
HOLLOW = frozenset({"square", "diamond", "triangle"})


def write_figures(edition: Edition, folder: Path) -> Iterator[Path]:
    """Writes every figure as PDF and SVG; the files, in order.

    The same report gives the same bytes: no date goes into a file.

    Args:
        edition: What is reported.
        folder: Exists.

    Raises:
        UnavailableError: If matplotlib is not installed.
    """
    mpl = load("matplotlib", "a figure for a paper")
    mpl.use("agg")
    style: dict[Any, Any] = {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e2",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.hashsalt": "kopt",
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "legend.frameon": False,
    }
    with mpl.rc_context(style):
        for chapter in edition.chapters:
            name = f"{chapter.subject.alias}-{chapter.hardware.name}"
            for chart in figures_of(chapter):
                stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{name}-{chart.id}")
                yield from _write(chart, folder, stem)


def _write(chart: Chart, folder: Path, stem: str) -> Iterator[Path]:
    width, height = INCHES
    if chart.is_sideways:
        height = 0.8 + 0.28 * len(chart.y.categories)
    figure = load("matplotlib.figure", "a figure").Figure(
        figsize=(width, height), layout="constrained"
    )
    axes = figure.subplots()
    _draw(chart, axes)
    for suffix, metadata in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        path = folder / f"{stem}.{suffix}"
        figure.savefig(path, metadata={**metadata, "Title": chart.title})
        yield path


def _draw(chart: Chart, axes: Axes) -> None:
    points = [point for series in chart.series for point in series.points]
    values = {
        "x": [point.x for point in points],
        "y": [v for p in points for v in (p.y, p.low, p.high) if v is not None],
    }
    for name, axis in (("x", chart.x), ("y", chart.y)):
        if axis.scale == "log":
            getattr(axes, f"set_{name}scale")("log")
        span = limits(axis, values[name])
        most = len(axis.categories) or 7
        places = ticks(axis, *span, most=min(most, 24))
        getattr(axes, f"set_{name}ticks")([at for at, _ in places], [text for _, text in places])
        getattr(axes, f"set_{name}ticks")([], minor=True)
        getattr(axes, f"set_{name}lim")(*span)
        getattr(axes, f"set_{name}label")(axis.title)
    if chart.is_sideways:
        axes.invert_yaxis()
    if len(chart.x.categories) > 12:
        axes.tick_params(axis="x", labelrotation=60)
    for series in chart.series:
        _series(series, axes)
    for mark in chart.marks:
        line = axes.axvline if mark.axis == "x" else axes.axhline
        line(mark.at, color="#59616a", linewidth=0.8, linestyle=":")
    if len(chart.series) > 1:
        axes.legend(loc="best")
    axes.set_title(chart.title, loc="left", fontsize=9, fontweight="bold")


def _series(series: Series, axes: Axes) -> None:
    xs, ys = [p.x for p in series.points], [p.y for p in series.points]
    colour = COLOURS[series.role]
    if series.marker == "bar":
        heights = [y - 1.0 for y in ys]
        axes.bar(xs, heights, width=0.6, bottom=1.0, color=colour, label=series.name)
        spread = [
            (p.x, p.y, p.low, p.high)
            for p in series.points
            if p.low is not None and p.high is not None
        ]
        if spread:
            at, middle, low, high = zip(*spread, strict=True)
            below = [m - each for m, each in zip(middle, low, strict=True)]
            above = [each - m for m, each in zip(middle, high, strict=True)]
            axes.errorbar(at, middle, yerr=[below, above], fmt="none", ecolor="#1b1f23", lw=0.9)
        return
    options: dict[str, Any] = {"color": colour, "label": series.name, "linewidth": 1.2}
    options["linestyle"] = LINES.get(series.line, "")
    options["marker"] = MARKERS.get(series.marker, "")
    options["markersize"] = 3.5
    if series.marker in HOLLOW and not (series.marker == "square" and series.role == "candidate"):
        options["markerfacecolor"] = "none"
    if series.line == "step":
        options["drawstyle"] = "steps-post"
    axes.plot(xs, ys, **options)
