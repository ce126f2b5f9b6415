"""The ``config.toml`` of a solution folder: how people write it, and how kopt writes it.

``[solution]`` and ``[build]`` are those of the FlashInfer-Bench starter kit; ``[tunables]`` is
kopt's. Two things that are common in the wild and change nothing here, a ``[benchmark]``
section and ``build.gpu``, are accepted with a note; any other unknown key is an error.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import ValidationError, field_validator

from ._invalid import invalid_input
from .build import get_builder, list_builders
from .errors import InvalidInputError
from .files import read_toml
from .schema import BuildSpec, Model, Solution
from .tunables import Tunable, parse_tunables

__all__ = ["SolutionConfig", "config_text", "read_config"]

ENTRY_POINT_HINT = 'write entry_point = "file::function", as in "kernel.py::run"'


class _SolutionTable(Model):
    name: str
    definition: str
    author: str
    description: str = ""

    @field_validator("name", "definition", "author")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value


class _BuildTable(BuildSpec):
    source_dir: str | None = None
    """Folder of the sources; default ``solution/<language>``."""
    gpu: Any = None
    """Tolerated; a target is chosen on the command line."""

    @field_validator("target_hardware", "dependencies", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("source_dir")
    @classmethod
    def _inside(cls, value: str | None) -> str | None:
        if value is None:
            return None
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or "\\" in value or not path.parts:
            raise ValueError(f"{value!r} is not a folder below the one of config.toml")
        return value


class _File(Model):
    solution: _SolutionTable
    build: _BuildTable
    tunables: Any = {}
    benchmark: Any = None


class SolutionConfig(NamedTuple):
    """What a ``config.toml`` says."""

    name: str
    definition: str
    author: str
    description: str
    spec: BuildSpec
    source_dir: str | None
    tunables: dict[str, Tunable]
    notes: tuple[str, ...]


def read_config(path: Path) -> SolutionConfig:
    """Read and validate a ``config.toml``.

    Raises:
        NotFoundError: If there is none.
        InvalidInputError: If it is malformed; names the key.
    """
    where = str(path)
    if path.is_symlink():
        raise InvalidInputError(f"{where!r} is a symlink", hint="put the file itself there")
    tables = read_toml(path, "config.toml")
    try:
        file = _File.model_validate(tables)
    except ValidationError as error:
        raise invalid_input(error, where, _File, hint=_hint(error)) from error
    require_language(file.build.language, where)
    spec_fields = {name: getattr(file.build, name) for name in BuildSpec.model_fields}
    return SolutionConfig(
        name=file.solution.name,
        definition=file.solution.definition,
        author=file.solution.author,
        description=file.solution.description,
        spec=BuildSpec.model_validate(spec_fields),
        source_dir=file.build.source_dir,
        tunables=parse_tunables(file.tunables, where),
        notes=_notes(file),
    )


def languages() -> list[str]:
    """Values of ``build.language`` that have a builder."""
    return [builder.language for builder in list_builders()]


def require_language(language: str, where: str) -> None:
    """Refuses a language that nothing builds.

    Raises:
        InvalidInputError: If there is no builder for it.
    """
    if language not in languages():
        raise InvalidInputError(
            f"{where!r}: unknown language {language!r}",
            hint=f"languages: {', '.join(languages())}; CuTe DSL is python",
        )


def _hint(error: ValidationError) -> str:
    key = str(error.errors()[0]["loc"][-1])
    hints = {
        "entry_point": ENTRY_POINT_HINT,
        "language": f"languages: {', '.join(languages())}; CuTe DSL is python",
        "binding": 'write binding = "tvm-ffi" or "torch", or leave it out',
        "source_dir": "name a folder beside config.toml, or one below solution/",
    }
    return hints.get(key, "see the config.toml of any folder in kernels/*/solutions/")


def _notes(file: _File) -> tuple[str, ...]:
    notes = []
    if file.benchmark is not None:
        notes.append("[benchmark] is ignored: trials and tolerances belong to kopt and the contest")
    if file.build.gpu is not None:
        notes.append(f"build.gpu = {file.build.gpu!r} is ignored: choose with --target")
    if file.build.binding is not None and not get_builder(file.build.language).native:
        notes.append(f"build.binding has no meaning for {file.build.language}")
    return tuple(notes)


def config_text(solution: Solution, *, tunables: dict[str, Tunable] | None = None) -> str:
    """The ``config.toml`` of a solution whose sources lie in the default folder."""
    spec = solution.spec
    lines = ["[solution]"]
    for key in ("name", "definition", "author", "description"):
        value = getattr(solution, key)
        if value or key != "description":
            lines.append(f"{key} = {_toml(value)}")
    lines += ["", "[build]"]
    for key in BuildSpec.model_fields:
        value = getattr(spec, key)
        if value is not None:
            lines.append(f"{key} = {_toml(value)}")
    for name, tunable in sorted((tunables or {}).items()):
        lines += ["", f"[tunables.{name}]"]
        lines += [f"{key} = {_toml(getattr(tunable, key))}" for key in Tunable.model_fields]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A TOML literal; JSON's are TOML's, except for DEL."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
