"""Knobs that a solution declares, and the source file that carries their values.

A ``[tunables.NAME]`` table in ``config.toml`` gives the values that make sense, a default among
them, and the directions that the knob serves. Packing writes the chosen values into a generated
source, so that a tuned solution is as self-contained as any other:

* ``tunables.h`` for cpp and cuda: ``#define KOPT_<NAME> <value>``. Strings are written bare
  (they name a type or a function) and booleans as 1 and 0.
* ``tunables.py`` for python and triton: ``<NAME> = <value>``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import (
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from ._invalid import invalid_input
from .build import get_builder
from .errors import InvalidInputError
from .files import read_toml
from .schema import Model, SourceFile

__all__ = ["Tunable", "TunableValue", "choose", "parse_tunables", "read_tunables", "render"]

TunableValue = int | float | str | bool
"""One value of a knob."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_BARE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Tunable(Model):
    """One knob."""

    values: tuple[StrictBool | StrictInt | StrictFloat | StrictStr, ...]
    """All of one type, none twice."""
    default: StrictBool | StrictInt | StrictFloat | StrictStr
    """One of ``values``."""
    directions: tuple[str, ...] = ()
    """Ids of the optimisation directions that this knob serves."""

    @field_validator("values")
    @classmethod
    def _homogeneous(cls, values: tuple[TunableValue, ...]) -> tuple[TunableValue, ...]:
        if not values:
            raise ValueError("needs at least one value")
        if len({type(value) for value in values}) > 1:
            raise ValueError(f"values of different types: {list(values)}")
        if len(set(values)) != len(values):
            raise ValueError(f"the same value twice: {list(values)}")
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{value} is not finite")
            if isinstance(value, str) and not value.isprintable():
                raise ValueError(f"{value!r} has characters that cannot be written into source")
        return values

    @model_validator(mode="after")
    def _default_is_a_value(self) -> Tunable:
        if not any(_same(self.default, value) for value in self.values):
            raise ValueError(f"default {self.default!r} is not among {list(self.values)}")
        return self


class _Table(NamedTuple):
    """File name and line format of one family of languages."""

    file: str
    comment: str


_HEADER = _Table("tunables.h", "//")
_MODULE = _Table("tunables.py", "#")


def read_tunables(folder: Path) -> dict[str, Tunable]:
    """The knobs that the ``config.toml`` of a solution folder declares, by name.

    Raises:
        NotFoundError: If there is no ``config.toml``.
        InvalidInputError: If the file or a declaration is malformed.
    """
    path = folder / "config.toml"
    return parse_tunables(read_toml(path, "config.toml").get("tunables", {}), str(path))


def parse_tunables(tables: Any, where: str) -> dict[str, Tunable]:
    """Validate the ``[tunables]`` table of a ``config.toml``; sorted by name.

    Raises:
        InvalidInputError: If a declaration is malformed; names it.
    """
    if not isinstance(tables, Mapping):
        raise InvalidInputError(
            f"{where}: 'tunables' is not a table", hint="write [tunables.NAME] tables"
        )
    found = {}
    for name in sorted(tables):
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{where}: the tunable name {name!r} is not in capitals",
                hint="use capital letters, digits and _, as in TILE_M",
            )
        try:
            found[name] = Tunable.model_validate(tables[name])
        except ValidationError as error:
            hint = "write values = [...], default = one of them, directions = [...]"
            raise invalid_input(error, f"{where}: tunables.{name}", Tunable, hint=hint) from error
    return found


def choose(
    declared: Mapping[str, Tunable], chosen: Mapping[str, TunableValue]
) -> dict[str, TunableValue]:
    """The value of every declared knob: the chosen one, else its default.

    Raises:
        InvalidInputError: If ``chosen`` names an unknown knob or a value not declared for it.
    """
    for name, value in chosen.items():
        if name not in declared:
            close = get_close_matches(name, declared, n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            names = ", ".join(sorted(declared)) or "none"
            raise InvalidInputError(
                f"the solution declares no tunable {name!r}", hint=f"{guess}declared: {names}"
            )
        if not any(_same(value, allowed) for allowed in declared[name].values):
            raise InvalidInputError(
                f"the tunable {name!r} has no value {value!r}",
                hint=f"declared values: {', '.join(map(repr, declared[name].values))}",
            )
    return {name: chosen.get(name, declared[name].default) for name in sorted(declared)}


def render(language: str, values: Mapping[str, TunableValue]) -> SourceFile:
    """The generated source that carries ``values``.

    Raises:
        InvalidInputError: If a string cannot be a bare word in C++.
    """
    table = _table(language)
    lines = [f"{table.comment} Written by kopt from the [tunables] of config.toml."]
    if table.file.endswith(".h"):
        lines.append("#pragma once")
        lines += [f"#define KOPT_{name} {_c(name, value)}" for name, value in values.items()]
    else:
        lines += [f"{name} = {value!r}" for name, value in values.items()]
    return SourceFile(path=table.file, content="\n".join(lines) + "\n")


def generated_file(language: str) -> str:
    """Name of the generated source of a language."""
    return _table(language).file


def _table(language: str) -> _Table:
    return _HEADER if get_builder(language).native else _MODULE


def _c(name: str, value: TunableValue) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str) and not _BARE_WORD.fullmatch(value):
        raise InvalidInputError(
            f"the tunable {name!r} cannot be {value!r} in C++: it is not one word",
            hint="a string value is written bare: name a type, function or macro",
        )
    return str(value)


def _same(left: TunableValue, right: TunableValue) -> bool:
    """Equal and of one type: 1, 1.0 and true are three values."""
    return type(left) is type(right) and left == right
