"""The data files: metric names, set-up rules, failures, thresholds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..files import read_toml

__all__ = [
    "Failure",
    "Field",
    "SetupRule",
    "Threshold",
    "failures",
    "fields",
    "setup_rules",
    "threshold",
]

_FOLDER = Path(__file__).parent / "data"

Scope = Literal["anywhere", "among-generators", "before-work"]


class Field(NamedTuple):
    """Where a figure of a kernel comes from."""

    units: tuple[str, ...]
    """Base units in which it counts."""
    factor: float
    """From the base unit to the unit of the field."""
    names: tuple[str, ...]
    advice: re.Pattern[str] | None
    """What finds it in a sentence of the profiler's rules, as group ``value``."""
    pick: Literal["min", "max"]
    """Which of several values of such sentences."""


class SetupRule(NamedTuple):
    """Which kernels prepare inputs."""

    kind: str
    scope: Scope
    pattern: re.Pattern[str]
    reason: str


class Failure(NamedTuple):
    """What a profiler says when it failed."""

    pattern: re.Pattern[str]
    cause: str
    hint: str


class Threshold(NamedTuple):
    """A number to compare with."""

    value: float
    source: str


@cache
def fields() -> dict[str, Field]:
    """By name of the field."""
    return {name: _field(entry) for name, entry in _table("metrics").items()}


@cache
def setup_rules() -> tuple[SetupRule, ...]:
    """In the order in which they are asked."""
    return tuple(
        SetupRule(**{**rule, "pattern": re.compile(rule["pattern"])})
        for rule in _table("setup")["rule"]
    )


@cache
def failures() -> tuple[Failure, ...]:
    """The special ones before the general one."""
    return tuple(
        Failure(**{**entry, "pattern": re.compile(entry["pattern"])})
        for entry in _table("failures")["failure"]
    )


def threshold(name: str) -> Threshold:
    """The threshold of this name; it must exist."""
    return _thresholds()[name]


@cache
def _thresholds() -> dict[str, Threshold]:
    return {name: Threshold(**entry) for name, entry in _table("thresholds").items()}


def _table(name: str) -> dict[str, Any]:
    return read_toml(_FOLDER / f"{name}.toml", "data file of the diagnosis")


def _field(entry: dict[str, Any]) -> Field:
    unit = entry["unit"]
    advice = entry.get("advice")
    return Field(
        units=(unit,) if isinstance(unit, str) else tuple(unit),
        factor=entry.get("factor", 1.0),
        names=tuple(entry["names"]),
        advice=None if advice is None else re.compile(advice),
        pick=entry.get("pick", "max"),
    )
