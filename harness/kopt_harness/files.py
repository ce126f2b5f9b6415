"""Reading and writing files that a user names: every failure is one clear sentence."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from .atomic import write_atomic
from .errors import InfraError, InvalidInputError, NotFoundError

__all__ = ["parse_json", "read_json", "read_text", "read_toml", "write_output"]


_LFS_POINTER = b"version https://git-lfs."
"""How the text begins that stands in the place of a file that Git LFS has not fetched."""


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file that a user named.

    Raises:
        NotFoundError: If it does not exist.
        InvalidInputError: If it is a folder, unreadable, or not UTF-8.
        InfraError: If it is the pointer of Git LFS and not the file.
    """
    try:
        if not path.exists():
            raise NotFoundError(f"no {what} at {str(path)!r}", hint="check the path")
        if not path.is_file():
            raise InvalidInputError(f"{str(path)!r} is not a file", hint=f"give a {what}")
        data = path.read_bytes()
        if data.startswith(_LFS_POINTER):
            raise InfraError(
                f"{str(path)!r} is a pointer of Git LFS, not the {what}", hint="run: git lfs pull"
            )
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{str(path)!r} is not UTF-8 text (byte {error.start})", hint=f"give a {what}"
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {str(path)!r}: {error.strerror}", hint="check the permissions"
        ) from error


def read_json(path: Path, what: str = "JSON file") -> Any:
    """The value in a JSON file.

    Raises:
        NotFoundError: If the file does not exist.
        InvalidInputError: If it is not JSON.
    """
    return parse_json(read_text(path, what), repr(str(path)), what)


def parse_json(text: str, where: str, what: str) -> Any:
    """The value that a text spells.

    Raises:
        InvalidInputError: If it is not JSON, nested too deeply, or has a number too long.
    """
    try:
        value = json.loads(text)
        # Half of a surrogate pair can be spelt, but neither printed nor written to a file.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        why = f"is not valid JSON (line {error.lineno}: {error.msg})"
        raise InvalidInputError(f"{where} {why}", hint=f"give a {what}") from error
    except RecursionError as error:
        raise InvalidInputError(f"{where} is nested too deeply", hint=f"give a {what}") from error
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{where} spells half of a surrogate pair", hint=f"give a {what}"
        ) from error
    except ValueError as error:
        raise InvalidInputError(
            f"{where} has a number that is too long", hint=f"give a {what}"
        ) from error
    return value


def read_toml(path: Path, what: str = "TOML file") -> dict[str, Any]:
    """The table in a TOML file.

    Raises:
        NotFoundError: If the file does not exist.
        InvalidInputError: If it is not TOML.
    """
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise InvalidInputError(
            f"{str(path)!r} is nested too deeply", hint=f"give a {what}"
        ) from error
    except ValueError as error:  # also a number with more digits than Python reads
        raise InvalidInputError(
            f"{str(path)!r} is not valid TOML: {error}", hint="correct that line"
        ) from error


def write_output(path: Path, text: str) -> None:
    """Write a file that a user named, whole or not at all; replaces what was there.

    A link stays one: the file that it names is replaced. What is no file (a terminal, a pipe, a
    device) is written to as it is.

    Raises:
        InvalidInputError: If the place is a folder or cannot be written.
    """
    if path.is_dir():
        raise InvalidInputError(f"{str(path)!r} is a folder", hint="give a file name")
    try:
        if path.exists() and not _is_replaceable(path):
            with path.open("a", encoding="utf-8", newline="") as stream:
                stream.write(text)
        else:
            write_atomic(Path(os.path.realpath(path)), text)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {str(path)!r}: {error.strerror}", hint="name a writable place"
        ) from error


def _is_replaceable(path: Path) -> bool:
    """Whether another file may take its place: not where somebody has it open by descriptor."""
    return path.is_file() and path.absolute().parts[1:2] not in (("dev",), ("proc",))
