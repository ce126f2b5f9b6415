"""Launches to kernels: figures by name, set-up left out, launches of one kernel together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from .record import Launch, Recorded
from .tables import Field, SetupRule, fields, setup_rules
from .units import parse_number, scale

__all__ = ["Figures", "Ignored", "Kernel", "Shape", "group", "short_name", "split_setup"]

Dim3 = tuple[int, int, int]


class Figures:
    """What is known of one launch, by the names of ``metrics.toml``."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._values = {name: self._find(field) for name, field in fields().items()}
        if self._values["duration_us"] is None:
            self._values["duration_us"] = launch.duration_us

    def get(self, name: str) -> float | None:
        """A figure; None where the profile does not have it."""
        return self._values[name]

    @cached_property
    def printed(self) -> dict[str, float]:
        """Every metric as printed, the unit in brackets."""
        return {_label(m.name, m.unit): m.value for m in self.launch.metrics}

    @cached_property
    def advice(self) -> str:
        """All sentences of the profiler's rules."""
        return "\n".join(advice.text for advice in self.launch.advice)

    def _find(self, field: Field) -> float | None:
        for name in field.names:
            for metric in self.launch.metrics:
                if metric.name == name:
                    value, unit = scale(metric.value, metric.unit)
                    if unit in field.units:
                        return value * field.factor
        if field.advice is None:
            return None
        said = [parse_number(match["value"]) for match in field.advice.finditer(self.advice)]
        known = [value for value in said if value is not None]
        return (min if field.pick == "min" else max)(known, default=None)


class Ignored(NamedTuple):
    """Kernels that prepare inputs."""

    name: str
    launches: int
    duration_us: float | None
    """Of all launches together."""
    kind: str
    reason: str


class Shape(NamedTuple):
    """Launches of a kernel with one grid and block."""

    grid: Dim3 | None
    block: Dim3 | None
    launches: int
    total_us: float | None
    figures: Figures
    """Of the launch whose duration is the median (the lower of two)."""


class Kernel(NamedTuple):
    """All launches of a kernel."""

    name: str
    launches: int
    total_us: float | None
    share: float | None
    """Of the time of all kernels that count, 0 to 1."""
    shapes: tuple[Shape, ...]
    """Most time first."""

    @property
    def main(self) -> Shape:
        """The shape that takes most of the time."""
        return self.shapes[0]


def _label(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def split_setup(recorded: Recorded) -> tuple[list[Figures], list[Ignored]]:
    """The launches that count, and those that prepare inputs."""
    figures = [Figures(launch) for launch in recorded.launches]
    rules = _rules_of(figures, ordered=recorded.ordered)
    kept = [f for f, rule in zip(figures, rules, strict=True) if rule is None]
    found: dict[tuple[str, SetupRule], list[Figures]] = {}
    for one, rule in zip(figures, rules, strict=True):
        if rule is not None:
            found.setdefault((short_name(one.launch.name), rule), []).append(one)
    ignored = [
        Ignored(name, sum(f.launch.count for f in ones), _total(ones), rule.kind, rule.reason)
        for (name, rule), ones in found.items()
    ]
    return kept, ignored


def _rules_of(figures: Sequence[Figures], *, ordered: bool) -> list[SetupRule | None]:
    """The rule by which each launch is set-up; None where it counts."""
    names = [f.launch.name for f in figures]
    anywhere = [_rule(name, "anywhere") for name in names]
    if not ordered:
        return anywhere
    among = [_rule(name, "among-generators") for name in names]
    before = [_rule(name, "before-work") for name in names]
    found = list(anywhere)
    last: int | None = None
    for i in range(len(names)):
        if anywhere[i] is not None:
            if last is not None:
                found[last + 1 : i] = among[last + 1 : i]
            last = i
        elif among[i] is None:
            last = None
    for i, rule in enumerate(before):
        found[i] = found[i] or rule
        if found[i] is None:
            break
    return found


def _rule(name: str, scope: str) -> SetupRule | None:
    return next((r for r in setup_rules() if r.scope == scope and r.pattern.search(name)), None)


def group(figures: Sequence[Figures]) -> tuple[Kernel, ...]:
    """Launches of one name together; most time first."""
    by_name: dict[str, list[Figures]] = {}
    for one in figures:
        by_name.setdefault(short_name(one.launch.name), []).append(one)
    whole = _total(figures)
    kernels = [
        Kernel(
            name=name,
            launches=sum(f.launch.count for f in ones),
            total_us=(total := _total(ones)),
            share=_share(total, whole, alone=len(by_name) == 1),
            shapes=_shapes(ones),
        )
        for name, ones in by_name.items()
    ]
    return tuple(sorted(kernels, key=lambda k: -(k.total_us or 0.0)))


def _share(total: float | None, whole: float | None, *, alone: bool) -> float | None:
    if alone:
        return 1.0
    return total / whole if total is not None and whole else None


def _shapes(figures: Sequence[Figures]) -> tuple[Shape, ...]:
    by_shape: dict[tuple[Dim3 | None, Dim3 | None], list[Figures]] = {}
    for one in figures:
        by_shape.setdefault((one.launch.grid, one.launch.block), []).append(one)
    shapes = [
        Shape(grid, block, sum(f.launch.count for f in ones), _total(ones), _median(ones))
        for (grid, block), ones in by_shape.items()
    ]
    return tuple(sorted(shapes, key=lambda s: -(s.total_us or 0.0)))


def _median(figures: Sequence[Figures]) -> Figures:
    """One launch and no mean: its figures belong together and stand in the file as they are."""
    ranked = sorted(figures, key=lambda f: f.get("duration_us") or 0.0)
    return ranked[(len(ranked) - 1) // 2]


def _total(figures: Sequence[Figures]) -> float | None:
    """Of all launches; None if the time of one is unknown."""
    times = [None if (us := f.get("duration_us")) is None else us * f.launch.count for f in figures]
    known = [us for us in times if us is not None]
    return sum(known) if len(known) == len(times) and known else None


_RETURN_TYPE = re.compile(r"^(?:static |inline )*(?:void|int|float|bool) (?=\S)")


def short_name(name: str) -> str:
    """A kernel's name without return type and parameter list; template arguments stay."""
    bare = _RETURN_TYPE.sub("", name.strip())
    if bare.endswith(")"):
        depth = 0
        for i in range(len(bare) - 1, -1, -1):
            depth += (bare[i] == ")") - (bare[i] == "(")
            if depth == 0:
                bare = bare[:i].rstrip() or bare
                break
    return bare
