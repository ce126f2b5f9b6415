"""The search space of a definition on a target: solutions and the values of their knobs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from kopt_harness.catalog import Catalog
from kopt_harness.pack import pack, read_tunables
from kopt_harness.schema import Definition, Solution
from kopt_harness.targets import Target, runs_on
from kopt_harness.tunables import Tunable, TunableValue, choose, render

__all__ = ["CatalogSpace", "Family", "Point", "SearchSpace", "locate", "settings_label"]

Settings = dict[str, TunableValue]


class Family(NamedTuple):
    """One solution and its knobs."""

    name: str
    language: str
    tunables: Mapping[str, Tunable]

    def serving(self, levers: tuple[str, ...]) -> dict[str, Tunable]:
        """Knobs that pull one of the levers; ``*`` means all."""
        return {
            name: tunable
            for name, tunable in self.tunables.items()
            if "*" in levers or set(levers) & set(tunable.directions)
        }

    def defaults(self) -> Settings:
        """The value that each knob has where nobody chose one."""
        return choose(self.tunables, {})


class Point(NamedTuple):
    """One member of a family."""

    family: str
    settings: Settings


class SearchSpace(Protocol):
    """What an agent may choose from without writing code."""

    def families(self) -> tuple[Family, ...]:
        """All families that run on the target, by name."""
        ...

    def pack(self, point: Point) -> Solution:
        """The self-contained solution of a point."""
        ...


class CatalogSpace:
    """The solutions of ``kernels/<definition>/solutions/`` that run on a target."""

    def __init__(self, catalog: Catalog, definition: Definition, target: Target) -> None:
        self._catalog = catalog
        self._definition = definition
        self._target = target

    def families(self) -> tuple[Family, ...]:
        """Read once: a round sees one state of the folders."""
        return self._families

    @cached_property
    def _families(self) -> tuple[Family, ...]:
        found = []
        for name in self._catalog.solution_names(self._definition):
            solution = self._catalog.solution(self._definition, name).solution
            if runs_on(solution, self._target):
                tunables = read_tunables(self._folder(name))
                found.append(Family(name, solution.spec.language, tunables))
        return tuple(found)

    def pack(self, point: Point) -> Solution:
        """Packs the folder with the settings; the name says what differs from the defaults."""
        family = next(f for f in self.families() if f.name == point.family)
        label = settings_label(point.settings, family.defaults())
        name = f"{family.name}-{label}" if label else family.name
        return pack(self._folder(point.family), tunables=point.settings, name=name).solution

    def _folder(self, name: str) -> Any:
        return self._catalog.folder(self._definition) / "solutions" / name


def settings_label(settings: Mapping[str, TunableValue], defaults: Mapping[str, Any]) -> str:
    """Settings that are not the default, as a part of a name: ``ROWS8-THREADS2``."""
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return "-".join(f"{name}{value}" for name, value in sorted(changed.items()))


def locate(space: SearchSpace, solution: Solution) -> Point | None:
    """The point that packs to exactly this solution; None if there is none any more."""
    for family in space.families():
        if family.language != solution.spec.language:
            continue
        settings = _read_settings(solution, family)
        if settings is None:
            continue
        point = Point(family.name, settings)
        if space.pack(point).sha256 == solution.sha256:
            return point
    return None


def _read_settings(solution: Solution, family: Family) -> Settings | None:
    """The values that the generated source of a packed solution carries."""
    lines = {line for source in solution.sources for line in source.content.splitlines()}
    settings: Settings = {}
    for name, tunable in family.tunables.items():
        for value in tunable.values:
            written = render(family.language, {name: value}).content.splitlines()[-1]
            if written in lines:
                settings[name] = value
        if name not in settings:
            return None
    return settings
