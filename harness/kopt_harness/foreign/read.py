"""Files and folders to results: every file is accounted for, no failure is a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import InvalidInputError, KoptError, NotFoundError
from ..schema import Model
from .readers import FileRead, Reader, ResultFile, list_readers
from .record import ForeignResult, Problem

__all__ = ["FileSummary", "Reading", "read_results"]


class FileSummary(Model):
    """What was done with one file."""

    file: str
    reader: str | None
    """Null where no reader knows the format, or the file could not be read."""
    results: int = 0
    ignored: int = 0
    """Entries that are no result, as a workload without a solution."""


class Reading(NamedTuple):
    """All that was read."""

    files: tuple[FileSummary, ...]
    results: tuple[ForeignResult, ...]
    problems: tuple[Problem, ...]


def read_results(paths: Iterable[Path]) -> Reading:
    """Results of files, and of all files below folders, in the order of their names.

    A malformed entry is a problem beside the results. So is a file below a folder that cannot be
    read; a file of a format that no reader knows is listed without a reader.

    Args:
        paths: Files and folders; a file that is named twice is read once.

    Raises:
        NotFoundError: If a path does not exist.
        InvalidInputError: If a named file cannot be read or holds no result, or if a named
            folder holds none.
    """
    files: list[FileSummary] = []
    results: list[ForeignResult] = []
    problems: list[Problem] = []
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"no file or folder {str(path)!r}", hint="check the path")
        first = len(problems)
        useful = False
        for file in _files(path, problems):
            if file.resolve() in seen:
                useful = True
                continue
            seen.add(file.resolve())
            reader, found = _read(file, named=file == path)
            counts = {"results": len(found.results), "ignored": found.ignored}
            files.append(FileSummary(file=str(file), reader=reader, **counts))
            results += found.results
            problems += found.problems
            useful = useful or any(counts.values())
        if not useful:
            raise _nothing_in(path, problems[first:])
    return Reading(tuple(files), tuple(results), tuple(problems))


def _files(path: Path, problems: list[Problem]) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    suffixes = {suffix for reader in list_readers() for suffix in reader.suffixes}

    def report(error: OSError) -> None:
        problems.append(
            Problem(file=str(error.filename), position="", detail=f"cannot list: {error.strerror}")
        )

    for folder, folders, names in os.walk(path, onerror=report):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix in suffixes:
                yield Path(folder) / name


def _read(file: Path, *, named: bool) -> tuple[str | None, FileRead]:
    """Name of the reader and what it found; of a file that was not named, errors are problems."""
    content = ResultFile(file)
    try:
        reader = _reader_of(content)
        if reader is not None:
            return reader.name, reader.read(content)
        if named:
            raise _unknown_format(file)
    except KoptError as error:
        if named:
            raise
        return None, FileRead((), (content.problem("", error.message),))
    return None, FileRead(())


def _reader_of(content: ResultFile) -> Reader | None:
    for reader in list_readers():
        if content.path.suffix in reader.suffixes and reader.recognises(content):
            return reader
    return None


def _nothing_in(path: Path, problems: list[Problem]) -> InvalidInputError:
    if not problems:
        return _unknown_format(path)
    first = problems[0]
    where = f"{first.file}:{first.position}" if first.position else first.file
    return InvalidInputError(
        f"{str(path)!r} has no result that can be read; the first of {len(problems)} problems "
        f"is at {where}: {first.detail}",
        hint="correct the file, or leave it out",
    )


def _unknown_format(path: Path) -> InvalidInputError:
    names = ", ".join(f"{reader.name} ({' '.join(reader.suffixes)})" for reader in list_readers())
    return InvalidInputError(
        f"{str(path)!r} holds no results of a format that kopt reads", hint=f"it reads {names}"
    )
