"""The archive of this machine: solutions by content, and runs with their journals.

``objects/<sha256>.json`` holds packed solutions, ``runs/<run>/`` a manifest, the journal and
logs. An object never changes; a manifest is written once. Committed evidence is elsewhere:
see ``retain.py``.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .atomic import write_atomic
from .errors import InvalidInputError, NotFoundError
from .schema import SCHEMA_VERSION, Solution

__all__ = ["MIN_PREFIX", "Archive", "Run", "read_solution"]

MIN_PREFIX = 6
"""Least number of hex digits by which an archived solution can be named."""

_NAME = re.compile(r"\d{8}-\d{6}-.*-[0-9a-f]{4}")


@dataclass(frozen=True)
class Run:
    """One run's folder."""

    folder: Path

    @property
    def id(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def moment(self) -> tuple[str, str]:
        """When it was made: second and fraction, which sort by time."""
        return self.id[: len("20261129-141722")], self.id.rpartition("-")[2]

    @property
    def journal_path(self) -> Path:
        """Append-only truth of the run."""
        return self.folder / "journal.jsonl"

    @property
    def logs(self) -> Path:
        """Output of builds and candidates."""
        return self.folder / "logs"

    @property
    def manifest_path(self) -> Path:
        """What the run was started with."""
        return self.folder / "manifest.json"

    def manifest(self) -> dict[str, Any]:
        """The manifest as a document.

        Raises:
            InvalidInputError: If it cannot be read as one.
        """
        try:
            data = json.loads(self.manifest_path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"cannot read the manifest of the run {self.id!r}: {error}",
                hint="kopt history lists the runs that can be read",
            ) from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
            raise InvalidInputError(
                f"the manifest of the run {self.id!r} is not of schema {SCHEMA_VERSION}",
                hint="read it with the version of kopt that wrote it",
            )
        return data


class Archive:
    """Solutions and runs under one folder (``artifacts/local``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.runs_folder = folder / "runs"
        self.sweeps_folder = folder / "sweeps"

    def put(self, solution: Solution) -> Path:
        """Keeps a packed solution; the same content is kept once."""
        path = self.objects / f"{solution.sha256}.json"
        if not path.exists():
            write_atomic(path, solution.model_dump_json(indent=1) + "\n")
        return path

    def get(self, sha256: str) -> Solution:
        """A packed solution by its full hash or an unambiguous prefix; verifies the content.

        Raises:
            NotFoundError: If there is none, or more than one.
            InvalidInputError: If the file's content is not what its name says.
        """
        path = self.objects / f"{sha256}.json"
        if not path.exists():
            path = self._by_prefix(sha256)
        solution = read_solution(path)
        if solution.sha256 != path.stem:
            raise InvalidInputError(
                f"the archived solution {path.stem[:12]!r} was changed: its content is "
                f"{solution.sha256[:12]!r}",
                hint=f"remove {str(path)!r} and measure the solution again",
            )
        return solution

    def _by_prefix(self, prefix: str) -> Path:
        is_prefix = re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX},64}}", prefix) is not None
        found = sorted(self.objects.glob(f"{prefix}*.json")) if is_prefix else []
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(path.stem[:16] for path in found[:5])
            raise NotFoundError(
                f"{prefix!r} is the beginning of {len(found)} archived solutions: {names}",
                hint="give more digits",
            )
        raise NotFoundError(
            f"no archived solution {prefix!r}",
            hint=f"give at least {MIN_PREFIX} digits of a hash that kopt history lists",
        )

    def create_run(self, label: str, manifest: dict[str, Any]) -> Run:
        """A new run's folder, with its manifest written.

        Args:
            label: Part of the id, for people.
            manifest: What the run is started with; ``schema``, ``run`` and ``created`` are added.
        """
        run = self._new_run(self.runs_folder, label)
        run.logs.mkdir()
        _write_manifest(run, run.id, manifest)
        return run

    def create_sweep(self, label: str, manifest: dict[str, Any], place: Path | None = None) -> Run:
        """A sweep's folder, with its manifest written; one that goes on keeps its own.

        Args:
            label: Part of the id, for people.
            manifest: As for a run.
            place: Where the folder is, if elsewhere; the archive then has a link to it.
        """
        if place is None:
            run = self._new_run(self.sweeps_folder, label)
            _write_manifest(run, run.id, manifest)
            return run
        run = Run(place)
        if not run.manifest_path.exists():
            name = self._new_name(self.sweeps_folder, label)
            _write_manifest(run, name, manifest)
            # What cannot be linked is not shown by kopt status, and that is all.
            with contextlib.suppress(OSError):
                self.sweeps_folder.mkdir(parents=True, exist_ok=True)
                (self.sweeps_folder / name).symlink_to(place.absolute())
        return run

    def _new_run(self, parent: Path, label: str) -> Run:
        """A folder named after this moment, which the name tells to 15 microseconds."""
        while True:
            run = Run(parent / self._new_name(parent, label))
            # Another process may have taken the same 15 microseconds.
            with contextlib.suppress(FileExistsError):
                run.folder.mkdir(parents=True)
                return run

    def _new_name(self, parent: Path, label: str) -> str:
        """After this moment, or after that of the latest if the clock was set back since."""
        now = datetime.now(UTC)
        second, fraction = f"{now:%Y%m%d-%H%M%S}", now.microsecond * 0x10000 // 1_000_000
        latest = max((Run(path).moment for path in _entries(parent)), default=("", ""))
        if (second, f"{fraction:04x}") <= latest:
            second, fraction = latest[0], int(latest[1], 16) + 1
            if fraction > 0xFFFF:
                later = datetime.strptime(second, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
                second, fraction = f"{later + timedelta(seconds=1):%Y%m%d-%H%M%S}", 0
        return f"{second}-{label}-{fraction:04x}"

    def runs(self) -> tuple[Run, ...]:
        """All runs that have a manifest, oldest first."""
        if not self.runs_folder.is_dir():
            return ()
        found = [Run(path) for path in self.runs_folder.iterdir() if path.is_dir()]
        made = [run for run in found if run.manifest_path.exists()]
        return tuple(sorted(made, key=lambda run: (run.moment, run.id)))

    def run(self, run_id: str) -> Run:
        """A run by its id or an unambiguous part of it.

        Raises:
            NotFoundError: If there is none, or more than one.
        """
        runs = self.runs()
        found = [run for run in runs if run.id == run_id] or [
            run for run in runs if run_id and run_id in run.id
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFoundError(
                f"{run_id!r} is part of {len(found)} runs: {', '.join(r.id for r in found[:5])}",
                hint="give the whole id",
            )
        known = ", ".join(run.id for run in runs[-5:]) or "there are none yet"
        raise NotFoundError(f"no run {run_id!r}", hint=f"latest runs: {known}")


def _entries(parent: Path) -> list[Path]:
    """Folders whose names are of the form that runs have."""
    if not parent.is_dir():
        return []
    return [path for path in parent.iterdir() if _NAME.fullmatch(path.name)]


def _write_manifest(run: Run, name: str, manifest: dict[str, Any]) -> None:
    head = {
        "schema": SCHEMA_VERSION,
        "run": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_atomic(run.manifest_path, json.dumps(head | manifest, indent=1) + "\n")


def read_solution(path: Path) -> Solution:
    """A packed solution from a file.

    Raises:
        InvalidInputError: If it cannot be read as one.
    """
    try:
        return Solution.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidInputError(
            f"cannot read the packed solution {str(path)!r}: {error}",
            hint="pack it again with: kopt pack DIR",
        ) from error
