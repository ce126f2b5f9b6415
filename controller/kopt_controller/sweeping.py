"""Sweeps as ``kopt status`` shows them: what is running, what is done, what failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from kopt_harness.index import Index, IndexedRun
from kopt_harness.watch import read_progress

from .kinds import CAMPAIGN, PROMOTE, SWEEP

__all__ = ["find_sweep", "running_sweep", "sweep_document"]

_RESULT_FILE = "result.json"


def find_sweep(index: Index, name: str | None) -> IndexedRun | None:
    """A sweep by its id, its folder, or a part of the id that no round has; else the latest.

    Args:
        index: Of the archive.
        name: What the user gave.
    """
    sweeps = [run for run in index.runs(SWEEP) if run.manifest]
    if name is not None:
        folder = Path(name).absolute()
        exact = [run for run in sweeps if run.id == name or run.folder.resolve() == folder]
        others = any(name in run.id for run in index.runs(CAMPAIGN, PROMOTE))
        sweeps = exact or ([] if others else [run for run in sweeps if name in run.id])
    return sweeps[-1] if sweeps else None


def running_sweep(index: Index) -> IndexedRun | None:
    """The latest sweep that is being written now."""
    return next((run for run in reversed(index.runs(SWEEP)) if run.state == "running"), None)


def sweep_document(index: Index, run: IndexedRun) -> dict[str, Any]:
    """The JSON of a sweep: what the journal has, and what its workers do if it is running."""
    state = run.state
    if state == "interrupted" and (run.folder / _RESULT_FILE).is_file():
        state = "finished"
    last = {(row.solution, row.uuid): row.verdict for row in index.evaluations(run.id)}
    return {
        "run": run.id,
        "kind": SWEEP,
        "folder": str(run.folder.resolve()),
        "definition": run.definition,
        "target": run.target,
        **run.manifest,
        "state": state,
        "records": run.records,
        "last": run.last,
        "verdicts": dict(Counter(last.values())),
        "progress": read_progress(run.folder) if state == "running" else None,
    }
