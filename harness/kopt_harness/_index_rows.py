"""What the index reads of a run's folder: which files there are, and rows out of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from .errors import InvalidInputError
from .version import SCHEMA_VERSION

__all__ = ["Stamp", "evaluation_of", "has_grown", "moment_of", "read_manifest", "stamp_of"]


class Stamp(NamedTuple):
    """Which files of a run have been read, and how far."""

    inode: int
    """Of the journal; 0 without one."""
    manifest_ns: int
    written_ns: int
    size: int
    """Bytes of the journal that have been read."""


def stamp_of(folder: Path) -> Stamp:
    """Which manifest and journal these are, and how long the journal is."""
    manifest_ns = (folder / "manifest.json").stat().st_mtime_ns
    try:
        found = (folder / "journal.jsonl").stat()
    except FileNotFoundError:
        return Stamp(0, manifest_ns, 0, 0)
    return Stamp(found.st_ino, manifest_ns, found.st_mtime_ns, found.st_size)


def has_grown(seen: Stamp, now: Stamp) -> bool:
    """Whether something was appended to the same journal."""
    return seen[:2] == now[:2] and seen.size < now.size


def read_manifest(run: str, folder: Path) -> dict[str, Any]:
    try:
        data = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read the manifest of the run {run!r}: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
        raise InvalidInputError(f"the manifest of the run {run!r} is not of schema 1")
    return data


def moment_of(run: str) -> str:
    """What sorts by time: second, then fraction."""
    return f"{run[: len('20261129-141722')]}-{run.rpartition('-')[2]}"


def evaluation_of(key: str, value: dict[str, Any]) -> tuple[Any, ...] | None:
    """Solution, workload, verdict, phase and median; None where a record is no evaluation."""
    parts = key.split("/")
    for place, part in enumerate(parts[:-2]):
        if part in ("check", "bench") and parts[place + 2] == value.get("uuid"):
            median_us = (value.get("timing") or {}).get("median_us")
            verdict, phase = str(value.get("verdict")), str(value.get("phase"))
            return parts[place + 1], value["uuid"], verdict, phase, median_us
    return None
