"""What plotly needs to draw a chart, and plotly itself, packed small enough for one file.

The script of the installed plotly package goes into the page compressed and is unpacked by the
browser when somebody first looks closer at a figure; until then, and on paper, there is the SVG.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .chart import Axis, Chart, Series

__all__ = ["PackedScript", "chart_data", "packed_plotly"]


class PackedScript(NamedTuple):
    """A script that a page carries."""

    base64: str
    """Of its gzip stream."""
    sha256: str
    """As a content policy names it."""


def packed_plotly() -> PackedScript | None:
    """The script of the installed plotly; None where it is not installed."""
    try:
        module = import_module("plotly")
    except ModuleNotFoundError:
        return None
    assert module.__file__ is not None, "plotly is a folder with an __init__.py"
    content = (Path(module.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
    # The page sees text, in which a carriage return is not told from a line feed.
    content = content.replace(b"\r\n", b"\n")
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    packed = base64.b64encode(gzip.compress(content, 5, mtime=0)).decode()
    return PackedScript(packed, f"'sha256-{digest}'")


def chart_data(chart: Chart) -> dict[str, Any]:
    """Axes and series as a script takes them; numbers have five digits, as many as are seen."""
    return {
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "sideways": chart.is_sideways,
        "series": [_series(series) for series in chart.series],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "title": axis.title,
        "scale": axis.scale,
        "categories": list(axis.categories),
        "whole": axis.is_whole,
    }


def _series(series: Series) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": series.name,
        "role": series.role,
        "marker": series.marker,
        "line": series.line,
        "x": [_short(point.x) for point in series.points],
        "y": [_short(point.y) for point in series.points],
        "label": [point.label for point in series.points],
    }
    if any(point.low is not None for point in series.points):
        found["low"] = [None if p.low is None else _short(p.low) for p in series.points]
        found["high"] = [None if p.high is None else _short(p.high) for p in series.points]
    return found


def _short(number: float) -> float:
    return float(f"{number:.5g}")
