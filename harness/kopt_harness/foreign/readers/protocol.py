"""What a reader is, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...files import parse_json, read_text
from ..record import ForeignResult, Place, Problem

__all__ = ["FileRead", "Reader", "ResultFile"]


@dataclass(frozen=True)
class ResultFile:
    """One file; read and parsed when asked for."""

    path: Path

    @cached_property
    def text(self) -> str:
        """Its text."""
        return read_text(self.path, "result file")

    @cached_property
    def value(self) -> Any:
        """The JSON value in it."""
        return parse_json(self.text, repr(str(self.path)), "result file")

    def place(self, position: str | int) -> Place:
        """A place in it."""
        return Place(file=str(self.path), position=str(position))

    def problem(self, position: str | int, detail: object) -> Problem:
        """Something in it that could not be read."""
        return Problem(file=str(self.path), position=str(position), detail=str(detail))


class FileRead(NamedTuple):
    """What a reader found in a file."""

    results: tuple[ForeignResult, ...]
    problems: tuple[Problem, ...] = ()
    ignored: int = 0
    """Entries that are whole and are no result, as a workload without a solution."""


class Reader(Protocol):
    """One file format."""

    @property
    def name(self) -> str:
        """Name of the format, for people and documents."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Ends of file names that the format has."""
        ...

    def recognises(self, file: ResultFile) -> bool:
        """Whether a file with one of the suffixes is of this format.

        Raises:
            InvalidInputError: If the file is no JSON where the format is.
        """
        ...

    def read(self, file: ResultFile) -> FileRead:
        """All entries; one that is malformed becomes a problem, and the others are read."""
        ...
