"""A new solution folder that builds and passes: a copy of an existing solution to start from.

The start is chosen among the definition's solutions in the wanted language: one that runs on
the CPU before one that does not, then the shortest. So a scaffold is as right as what is
already there, for any definition, and there is no template that could drift from it.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from .catalog import Catalog
from .errors import InvalidInputError, NotFoundError, UsageError
from .pack import pack, write_folder
from .schema import Definition, Solution
from .solution_config import config_text
from .tunables import generated_file, read_tunables

__all__ = ["Scaffold", "create_solution"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Scaffold(NamedTuple):
    """What was made."""

    folder: Path
    solution: Solution
    origin: str
    """Name of the solution that it was begun from."""


def create_solution(
    catalog: Catalog,
    definition: Definition,
    name: str,
    *,
    language: str,
    author: str,
    origin: str | None = None,
    folder: Path | None = None,
) -> Scaffold:
    """Write a new solution folder, whole or not at all.

    Args:
        catalog: Where the definition's solutions are.
        definition: What to solve.
        name: Of the solution.
        language: Of the solution.
        author: Of the solution.
        origin: Solution to start from; default: see the module docstring.
        folder: Where to; default: ``solutions/<name>`` of the definition.

    Raises:
        InvalidInputError: If the name cannot be a folder name, or the folder exists.
        NotFoundError: If ``origin`` does not exist.
        UsageError: If there is no solution in that language to start from.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a solution",
            hint="use up to 64 letters, digits, '.', '_' and '-', beginning with one of the first",
        )
    solutions = catalog.folder(definition) / "solutions"
    target = folder if folder is not None else solutions / name
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise InvalidInputError(f"{str(target)!r} exists", hint="choose another name")
    start = _start(catalog, definition, language, origin)
    start_folder = solutions / start.name
    tunables = read_tunables(start_folder)
    generated = generated_file(language) if tunables else None
    solution = start.solution.model_copy(
        update={"name": name, "author": author, "description": f"begun from {start.name}"}
    )
    readme = resources.files("kopt_harness") / "templates" / "solution_readme.md"
    files = {
        "config.toml": config_text(solution, tunables=tunables),
        "README.md": Template(readme.read_text()).substitute(
            name=name,
            language=language,
            definition=definition.name,
            origin=start.name,
            folder=_shown(target, catalog),
            origin_folder=_shown(start_folder, catalog),
        ),
    }
    for source in solution.sources:
        if source.path != generated:
            files[f"solution/{language}/{source.path}"] = source.content
    write_folder(target, files, verify=start.solution.sha256)
    return Scaffold(target, pack(target, known=catalog).solution, start.name)


def _shown(folder: Path, catalog: Catalog) -> Path:
    """A path as it is typed at the root, where it lies below it."""
    path, root = folder.absolute(), catalog.root.path
    return path.relative_to(root) if path.is_relative_to(root) else path


class _Start(NamedTuple):
    """A solution by its folder's name; the name inside ``config.toml`` may differ."""

    name: str
    solution: Solution


def _start(catalog: Catalog, definition: Definition, language: str, origin: str | None) -> _Start:
    if origin is not None:
        start = _Start(origin, catalog.solution(definition, origin).solution)
        if start.solution.spec.language != language:
            raise UsageError(
                f"{origin!r} is written in {start.solution.spec.language}, not {language}",
                hint=f"say --language {start.solution.spec.language}",
            )
        return start
    names = catalog.solution_names(definition)
    starts = [_Start(name, catalog.solution(definition, name).solution) for name in names]
    suitable = [start for start in starts if start.solution.spec.language == language]
    if suitable:
        return min(suitable, key=_simplicity)
    languages = sorted({start.solution.spec.language for start in starts})
    if not languages:
        raise NotFoundError(
            f"{definition.name} has no solution to start from",
            hint="write config.toml and solution/<language>/ by hand, as in other definitions",
        )
    raise UsageError(
        f"{definition.name} has no {language} solution to start from",
        hint=f"languages with a starting point: {', '.join(languages)}",
    )


def _simplicity(start: _Start) -> tuple[bool, int, str]:
    size = sum(len(source.content) for source in start.solution.sources)
    return ("cpu" not in start.solution.spec.target_hardware, size, start.name)
