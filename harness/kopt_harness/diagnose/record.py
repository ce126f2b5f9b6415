"""What a reader finds in a profiler's file: launches, and what was said beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Advice", "Launch", "Metric", "Recorded", "Timeline"]

Dim3 = tuple[int, int, int]


class Metric(NamedTuple):
    """One figure as printed."""

    name: str
    unit: str
    """As printed; two metrics of one name in different units are two metrics."""
    value: float


class Advice(NamedTuple):
    """A sentence of the profiler's own rules."""

    section: str
    text: str
    """On one line."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, or one row of a table that sums several up."""

    name: str
    """As printed, with template arguments."""
    grid: Dim3 | None = None
    block: Dim3 | None = None
    duration_us: float | None = None
    """Of one launch, where no metric says it."""
    count: int = 1
    """Launches in the row."""
    on_device: bool = True
    """False for an operator of the CPU."""
    metrics: tuple[Metric, ...] = ()
    advice: tuple[Advice, ...] = ()


class Timeline(NamedTuple):
    """How the device was kept busy over what was recorded."""

    span_us: float
    """From the first activity to the end of the last; host time where only that is known."""
    busy_us: float
    """Part of it in which the device worked."""


@dataclass(frozen=True)
class Recorded:
    """One file."""

    launches: tuple[Launch, ...]
    ordered: bool = True
    """Whether the launches stand in the order in which they ran."""
    timeline: Timeline | None = None
    notes: tuple[str, ...] = ()
    """What a reader of the diagnosis should know."""
