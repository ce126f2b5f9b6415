"""Solution folder ⇄ solution JSON.

A folder holds ``config.toml`` and its sources, by default in ``solution/<language>/``. Packing
reads the sources recursively and leaves out what is no source: logs, bytecode, ``.prev`` files
and other backups, hidden files, empty files. It refuses what could read or write outside the
folder (symlinks, ``..``, absolute paths), what two file systems would see differently (names
that differ in case only) and what is not text.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from ._invalid import invalid_input
from .errors import InvalidInputError, NotFoundError
from .files import read_json
from .schema import BuildSpec, Solution, SourceFile
from .solution_config import (
    ENTRY_POINT_HINT,
    SolutionConfig,
    config_text,
    read_config,
    require_language,
)
from .tunables import TunableValue, choose, generated_file, read_tunables, render

if TYPE_CHECKING:
    from .catalog import Catalog

__all__ = ["Packed", "load", "pack", "read_tunables", "solution_json", "unpack"]

MAX_SOURCE_BYTES = 4 * 2**20
"""Largest source; generated tables in real solutions are below 1 MiB."""

MAX_SOLUTION_BYTES = 7 * 2**20
"""Largest packed solution: it is sent to workers in one frame."""

_NOT_SOURCE = re.compile(
    r"""
    (?!\.\.?$)\..*                          # hidden
    | __pycache__ | .*\.py[cod]             # bytecode
    | .*\.log                               # logs
    | .*\.prev                              # what a search kept of the round before
    | .*~ | \#.*\# | .*\.(sw[nop]|bak|orig|rej)  # editor and patch backups
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Packed(NamedTuple):
    """A solution, and what a person should know about its packing."""

    solution: Solution
    notes: tuple[str, ...]


def pack(
    folder: Path,
    *,
    tunables: Mapping[str, TunableValue] | None = None,
    name: str | None = None,
    known: Catalog | None = None,
) -> Packed:
    """Pack a solution folder.

    Args:
        folder: Holds ``config.toml``.
        tunables: Values for declared knobs; the others get their defaults.
        name: Replaces the name in ``config.toml``.
        known: Checks that the definition exists; without it any definition is accepted.

    Raises:
        NotFoundError: If the folder, its ``config.toml``, its sources or its definition do
            not exist.
        InvalidInputError: If ``config.toml`` is malformed or a source cannot be packed.
    """
    if not folder.is_dir():
        raise NotFoundError(
            f"no solution folder at {str(folder)!r}", hint="give the folder that has config.toml"
        )
    config = read_config(folder / "config.toml")
    notes = list(config.notes)
    definition = _known_definition(config.definition, known, notes)
    source_dir = _source_dir(folder, config)
    if config.source_dir is not None:
        notes.append(f"sources are read from {source_dir.relative_to(folder).as_posix()}/")
    sources = _read_sources(source_dir)
    sources += _generated(config, tunables or {}, sources)
    _require_entry(config.spec, sources, str(source_dir))
    solution = _build(
        {
            "name": name or config.name,
            "definition": definition,
            "author": config.author,
            "description": config.description,
            "spec": config.spec,
            "sources": tuple(sorted(sources, key=lambda source: source.path)),
        },
        str(folder),
    )
    return Packed(solution, (*notes, *_entry_notes(solution)))


def load(path: Path, *, known: Catalog | None = None) -> Packed:
    """Read a solution, from a folder or a JSON file.

    Raises:
        NotFoundError: If the path, or the definition, does not exist.
        InvalidInputError: If it is not a valid solution.
    """
    if path.is_dir():
        return pack(path, known=known)
    data = read_json(path, "solution folder or solution JSON")
    return _from_json(data, str(path), known)


def solution_json(solution: Solution) -> str:
    """The JSON file of a solution, as FlashInfer-Bench reads it."""
    return json.dumps(solution.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def unpack(solution: Solution, folder: Path) -> None:
    """Write a solution as a folder that packs to the same content again.

    The folder appears whole or not at all.

    Raises:
        InvalidInputError: If the folder exists and is not empty, cannot be written, or would
            not pack to the same solution.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(f"{str(folder)!r} is not a folder", hint="name a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInputError(f"{str(folder)!r} is not empty", hint="name a new folder")
    files = {"config.toml": config_text(solution)}
    prefix = f"solution/{solution.spec.language}"
    files |= {f"{prefix}/{source.path}": source.content for source in solution.sources}
    write_folder(folder, files, verify=solution.sha256)


def write_folder(folder: Path, files: Mapping[str, str], *, verify: str | None = None) -> None:
    """Write a solution folder whole or not at all; ``folder`` must be absent or empty.

    Args:
        folder: Where to.
        files: Contents by path relative to it.
        verify: The SHA-256 that the folder must pack to.
    """
    target = folder.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {str(folder)!r}: {error.strerror}", hint="name a writable place"
        ) from error
    try:
        for name, content in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        if verify is not None and pack(temporary).solution.sha256 != verify:
            raise InvalidInputError(
                "the solution has sources that packing leaves out",
                hint="remove empty, hidden and backup files from it",
            )
        temporary.chmod(0o755)
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _known_definition(name: str, known: Catalog | None, notes: list[str]) -> str:
    if known is None:
        return name
    definition = known.resolve_exact(name)
    if definition.name != name:
        notes.append(f"the definition {name!r} is packed as {definition.name!r}")
    return definition.name


def _source_dir(folder: Path, config: SolutionConfig) -> Path:
    wanted = config.source_dir or f"solution/{config.spec.language}"
    places = [folder / wanted]
    if config.source_dir is not None:
        places.append(folder / "solution" / wanted)
    for place in places:
        _refuse_symlinks(folder, place)
        if place.is_dir():
            return place
    present = sorted(p.name for p in (folder / "solution").glob("*") if p.is_dir())
    there = f"; solution/ has {', '.join(present)}" if present else ""
    raise NotFoundError(
        f"no sources at {str(places[0])!r}",
        hint=f"put them there, or name their folder with source_dir in [build]{there}",
    )


def _refuse_symlinks(folder: Path, place: Path) -> None:
    """No part of ``place`` below ``folder`` may be a symlink."""
    current = folder
    for part in place.relative_to(folder).parts:
        current /= part
        if current.is_symlink():
            raise _symlink(current)


def _symlink(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{str(path)!r} is a symlink", hint="a packed solution is self-contained: copy the file"
    )


def _read_sources(source_dir: Path) -> list[SourceFile]:
    sources = []
    seen: dict[str, str] = {}
    for path in _walk(source_dir):
        content = _read_source(path)
        if not content:
            continue
        name = path.relative_to(source_dir).as_posix()
        twin = seen.setdefault(name.casefold(), name)
        if twin != name:
            raise InvalidInputError(
                f"the sources {twin!r} and {name!r} differ in case only",
                hint="rename one: some file systems cannot hold both",
            )
        try:
            sources.append(SourceFile(path=name, content=content))
        except ValidationError as error:
            raise InvalidInputError(
                f"the source name {name!r} cannot be packed", hint="use plain file names"
            ) from error
    return sources


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files below ``folder``, sorted, without what is no source."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the folder {str(folder)!r}: {error.strerror}",
            hint="check the permissions",
        ) from error
    for entry in entries:
        path = folder / entry.name
        if entry.is_symlink():
            raise _symlink(path)
        if _NOT_SOURCE.fullmatch(entry.name):
            continue
        if entry.is_dir():
            yield from _walk(path)
        elif entry.is_file():
            yield path
        else:
            raise InvalidInputError(
                f"{str(path)!r} is not a regular file", hint="remove it from the sources"
            )


def _read_source(path: Path) -> str:
    try:
        path.name.encode()
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_SOURCE_BYTES else b""
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"the source name {path.name!r} is not UTF-8", hint="rename the file"
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {str(path)!r}: {error.strerror}", hint="check the permissions"
        ) from error
    if size > MAX_SOURCE_BYTES:
        raise InvalidInputError(
            f"{str(path)!r} has {size} bytes, more than {MAX_SOURCE_BYTES}",
            hint="compute large tables when the solution is loaded",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _binary(path) from error
    if "\0" in text:
        raise _binary(path)
    return text


def _binary(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{str(path)!r} is binary, not UTF-8 text",
        hint="a solution is packed from source only: remove build products",
    )


def _generated(
    config: SolutionConfig, chosen: Mapping[str, TunableValue], sources: list[SourceFile]
) -> list[SourceFile]:
    values = choose(config.tunables, chosen)
    if not values:
        return []
    file = generated_file(config.spec.language)
    if any(source.path.casefold() == file for source in sources):
        raise InvalidInputError(
            f"the sources already have a {file!r}, which packing writes from [tunables]",
            hint="remove the file or the [tunables] tables",
        )
    return [render(config.spec.language, values)]


def _require_entry(spec: BuildSpec, sources: list[SourceFile], where: str) -> None:
    if not sources:
        raise NotFoundError(
            f"no sources in {where!r}", hint="empty, hidden, log and backup files do not count"
        )
    paths = [source.path for source in sources]
    if spec.entry_file not in paths:
        raise NotFoundError(
            f"the entry file {spec.entry_file!r} is not in {where!r}",
            hint=f"files there: {', '.join(paths[:8])}",
        )


def _entry_notes(solution: Solution) -> tuple[str, ...]:
    spec = solution.spec
    entry = next(source for source in solution.sources if source.path == spec.entry_file)
    if re.search(rf"\b{re.escape(spec.entry_function)}\b", entry.content):
        return ()
    return (f"{spec.entry_file!r} does not mention the function {spec.entry_function!r}",)


def _build(fields: Mapping[str, Any], where: str) -> Solution:
    try:
        solution = Solution.model_validate(fields)
    except ValidationError as error:
        hint = ENTRY_POINT_HINT if "entry_point" in str(error.errors()[0]["loc"]) else ""
        raise invalid_input(
            error, where, Solution, hint=hint or "see the solution schema of FlashInfer-Bench"
        ) from error
    require_language(solution.spec.language, where)
    size = len(json.dumps(solution.model_dump(mode="json")))
    if size > MAX_SOLUTION_BYTES:
        raise InvalidInputError(
            f"{where}: packed, the solution has {size} bytes, more than {MAX_SOLUTION_BYTES}",
            hint="compute large tables when the solution is loaded",
        )
    return solution


def _from_json(data: Any, where: str, known: Catalog | None) -> Packed:
    """A solution from its JSON; keys that kopt does not know are left out, with a note."""
    if not isinstance(data, dict) or not isinstance(data.get("spec", {}), dict):
        raise InvalidInputError(
            f"{where}: not a solution", hint="a solution is a JSON object with name, spec, sources"
        )
    notes: list[str] = []
    fields = _known_keys(data, Solution.model_fields, "", notes)
    if "spec" in fields:
        fields["spec"] = _known_keys(fields["spec"], BuildSpec.model_fields, "spec.", notes)
    if isinstance(fields.get("sources"), list):
        fields["sources"] = _json_sources(fields["sources"], notes)
    if isinstance(fields.get("definition"), str):
        fields["definition"] = _known_definition(fields["definition"], known, notes)
    solution = _build(fields, where)
    paths = {source.path.casefold() for source in solution.sources}
    if len(paths) < len(solution.sources):
        raise InvalidInputError(
            f"{where}: two sources differ in case only", hint="rename one of them"
        )
    return Packed(solution, (*notes, *_entry_notes(solution)))


def _known_keys(
    data: Mapping[str, Any], known: Mapping[str, Any], prefix: str, notes: list[str]
) -> dict[str, Any]:
    notes += [f"the key {prefix}{key} is ignored" for key in data if key not in known]
    return {key: value for key, value in data.items() if key in known and value is not None}


def _json_sources(sources: list[Any], notes: list[str]) -> list[Any]:
    kept = []
    for source in sources:
        if not isinstance(source, dict):
            kept.append(source)
            continue
        path = source.get("path")
        if _is_left_out(path, source.get("content")):
            notes.append(f"the source {path!r} is left out: empty, hidden, log or backup")
            continue
        kept.append(_known_keys(source, SourceFile.model_fields, "sources.", notes))
    return kept


def _is_left_out(path: Any, content: Any) -> bool:
    """Whether packing a folder would leave this source out."""
    if not isinstance(path, str) or path.startswith("/") or ".." in path:
        return False  # the model refuses a path that leads outside
    return content == "" or any(map(_NOT_SOURCE.fullmatch, PurePosixPath(path).parts))
