"""What a reader is, and what it is given."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ...errors import InvalidInputError, NotFoundError
from ..record import Recorded

__all__ = ["ProfileFile", "Reader"]

MAX_BYTES = 1 << 30
"""Of the text that a compressed file may hold."""
_GZIP = b"\x1f\x8b"
_NUL = b"\x00"


@dataclass(frozen=True)
class ProfileFile:
    """One file; read when asked for."""

    path: Path

    @cached_property
    def data(self) -> bytes:
        """Its bytes, uncompressed.

        Raises:
            NotFoundError: If there is no such file.
            InvalidInputError: If it is a folder, cannot be read, or is damaged or huge.
        """
        name = str(self.path)
        if not self.path.exists():
            raise NotFoundError(f"no profile at {name!r}", hint="check the path")
        if not self.path.is_file():
            raise InvalidInputError(f"{name!r} is not a file", hint="give a profiler's file")
        try:
            data = self.path.read_bytes()
            if not data.startswith(_GZIP):
                return data
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(
                f"cannot read {name!r}: {error}", hint="check the permissions, or take it again"
            ) from error
        if len(data) > MAX_BYTES:
            raise InvalidInputError(
                f"{name!r} is larger than {MAX_BYTES} bytes", hint="profile fewer steps"
            )
        return data

    @property
    def is_text(self) -> bool:
        """Whether its beginning could be text."""
        return _NUL not in self.data[:4096]

    @cached_property
    def text(self) -> str:
        """Its text; bytes that are no UTF-8 are replaced, since names may hold anything."""
        return self.data.decode("utf-8", errors="replace")

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, split at line feeds alone."""
        return [line.rstrip("\r") for line in self.text.split("\n")]


class Reader(Protocol):
    """One file format."""

    @property
    def name(self) -> str:
        """Name of the format, for people and documents."""
        ...

    def recognises(self, file: ProfileFile) -> bool:
        """Whether the file is of this format; looks at its content."""
        ...

    def read(self, file: ProfileFile) -> Recorded:
        """All launches; without any, ``Recorded.launches`` is empty.

        Raises:
            InvalidInputError: If the file cannot be read as what it looks like.
            UnavailableError: If a tool that is needed is not here.
        """
        ...
