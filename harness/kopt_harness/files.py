"""Reading and writing files that a user names: every failure is one clear sentence."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from .atomic import write_atomic
from .errors import InvalidInputError, NotFoundError

__all__ = ["read_json", "read_text", "read_toml", "write_output"]


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file that a user named.

    Raises:
        NotFoundError: If it does not exist.
        InvalidInputError: If it is a folder, unreadable, or not UTF-8.
    """
    if not path.exists():
        raise NotFoundError(f"no {what} at {str(path)!r}", hint="check the path")
    if not path.is_file():
        raise InvalidInputError(f"{str(path)!r} is not a file", hint=f"give a {what}")
    try:
        return path.read_bytes().decode()
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
    text = read_text(path, what)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{str(path)!r} is not valid JSON (line {error.lineno}: {error.msg})",
            hint=f"give a {what}",
        ) from error
    except RecursionError as error:
        raise InvalidInputError(
            f"{str(path)!r} is nested too deeply", hint=f"give a {what}"
        ) from error


def read_toml(path: Path, what: str = "TOML file") -> dict[str, Any]:
    """The table in a TOML file.

    Raises:
        NotFoundError: If the file does not exist.
        InvalidInputError: If it is not TOML.
    """
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(
            f"{str(path)!r} is not valid TOML: {error}", hint="correct that line"
        ) from error


def write_output(path: Path, text: str) -> None:
    """Write a file that a user named, whole or not at all; replaces what was there.

    Raises:
        InvalidInputError: If the place is a folder or cannot be written.
    """
    if path.is_dir():
        raise InvalidInputError(f"{str(path)!r} is a folder", hint="give a file name")
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {str(path)!r}: {error.strerror}", hint="name a writable place"
        ) from error
