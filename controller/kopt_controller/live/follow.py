"""Follows one campaign: reads what was appended to its files since the last look."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kopt_harness.archive import Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, KoptError
from kopt_harness.journal import is_being_written, read_records
from kopt_harness.targets import get_target
from kopt_harness.watch import PROGRESS_FILE, read_progress

from ..campaign import Manifest, read_manifest
from ..steering import STEER_FILE, read_steers
from .board import Board
from .evaluations import EvaluationTable
from .fold import Fold, Setup

__all__ = ["Follower"]


class Follower:
    """The board of one run; ``advance`` brings it up to date."""

    def __init__(self, run: Run, catalog: Catalog | None = None) -> None:
        """Reads the manifest, and nothing else yet.

        Args:
            run: A campaign.
            catalog: Says how many workloads a sweep has; None: nobody does.

        Raises:
            InvalidInputError: If the run is no campaign.
        """
        self.run = run
        self.generation = 0
        """Rises where the journal is another one than before, and all that was shown is void."""
        self._manifest = read_manifest(run)
        self._setup = _setup(self._manifest, catalog)
        self._stamps: dict[str, tuple[int, int]] = {}
        self._restart()

    def _restart(self) -> None:
        self.board = Board()
        self._fold = Fold(self.board, self._setup)
        self._end = self._seq = self._inode = 0
        self._last: dict[str, str] | None = None
        self._problem = ""
        self._stamps.clear()

    @property
    def table(self) -> EvaluationTable:
        """Every workload that was checked."""
        return self._fold.table

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``interrupted``, or ``gone`` with its folder."""
        return str(self.board.get("run").get("state", "running"))

    def advance(self) -> bool:
        """Takes in what is new; whether anything is."""
        before = (self.generation, self.board.revision)
        if not self.run.manifest_path.exists():
            self._show("gone")
            return before != (self.generation, self.board.revision)
        is_first = self._seq == 0
        try:
            self._read_journal()
            self._read_steers()
        except FileNotFoundError:  # it is being removed
            self._show("gone")
            return True
        except KoptError as error:
            self._problem = error.message
        self._fold.look(all_at_once=is_first)
        self._show(self._state())
        self._read_work()
        return before != (self.generation, self.board.revision)

    def _state(self) -> str:
        if self._fold.finished:
            return "finished"
        return "running" if is_being_written(self.run.journal_path) else "interrupted"

    def _read_journal(self) -> None:
        path = self.run.journal_path
        try:
            found = path.stat()
        except FileNotFoundError:  # the run has not begun to write
            return
        if self._seq and (found.st_ino != self._inode or found.st_size < self._end):
            self.generation += 1
            self._restart()
        self._inode = found.st_ino
        if found.st_size == self._end:
            return
        for record, end in read_records(path, start=self._end, seq=self._seq):
            try:
                self._fold.take(record)
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"record {record.seq} ({record.key}) has a form that is not known: {error!r}",
                    hint="look at the run with the version of kopt that wrote it",
                ) from error
            self._end, self._seq = end, record.seq + 1
            self._last = {"time": record.time, "key": record.key}

    def _read_steers(self) -> None:
        path = self.run.folder / STEER_FILE
        if not self._has_changed(path):
            return
        for number, each in enumerate(read_steers(path)):
            self.board.put(f"steer/{number}", {"number": number, **each.model_dump(mode="json")})

    def _read_work(self) -> None:
        """What the workers do, from the file that the command keeps beside the journal."""
        path = self.run.folder / PROGRESS_FILE
        running = self.state == "running"
        if running and not self._has_changed(path) and self.board.get("work"):
            return
        found = read_progress(self.run.folder) if running else None
        workers = [] if found is None else found["workers"]
        written = path.stat().st_mtime if workers else time.time()
        shown = [
            {"worker": each["worker"], "doing": each["doing"], "since": written - each["for_s"]}
            for each in workers
        ]
        self.board.put("work", {"workers": shown})

    def _has_changed(self, path: Path) -> bool:
        try:
            found = path.stat()
        except FileNotFoundError:
            return False
        stamp = (found.st_mtime_ns, found.st_size)
        if self._stamps.get(path.name) == stamp:
            return False
        self._stamps[path.name] = stamp
        return True

    def _show(self, state: str) -> None:
        manifest = self._manifest
        self.board.put(
            "run",
            _head(manifest)
            | {
                "state": state,
                "records": self._seq,
                "last": self._last,
                "evaluations": len(self._fold.table),
                "verdicts": {name: n for name, n in self._fold.table.verdicts.items() if n},
                "problem": self._problem,
            },
        )


def _head(manifest: Manifest) -> dict[str, Any]:
    return {
        "run": manifest.run,
        "definition": manifest.definition,
        "target": manifest.target,
        "created": manifest.created,
        "agent": manifest.config.agent,
        "mode": manifest.mode,
        "rounds_planned": manifest.config.rounds,
        "first_round": manifest.first_round,
        "incumbent": manifest.incumbent.model_dump(mode="json"),
    }


def _setup(manifest: Manifest, catalog: Catalog | None) -> Setup:
    measure = manifest.config.measure
    return Setup(
        incumbent=manifest.incumbent.name,
        incumbent_sha256=manifest.incumbent.sha256,
        confidence=measure.confidence,
        sweep_workloads=None if catalog is None else _sweep_workloads(manifest, catalog),
        rounds=get_target(manifest.target).rounds if measure.rounds is None else measure.rounds,
    )


def _sweep_workloads(manifest: Manifest, catalog: Catalog) -> int | None:
    try:
        definition = catalog.resolve_exact(manifest.definition)
        return len(catalog.select(definition, manifest.config.sweep_workloads))
    except KoptError:
        # A run outlives its definition, which must not hide what it measured.
        return None
