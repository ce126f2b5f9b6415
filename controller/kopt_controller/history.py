"""Runs as they lie in the archive: what ``kopt status`` and ``kopt history`` show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.errors import KoptError, NotFoundError
from kopt_harness.journal import JournalRecord, is_being_written, read_journal

from .campaign import CAMPAIGN, FINISHED_KEY, Manifest, read_manifest
from .memory import closed_rounds
from .result import RoundResult

__all__ = [
    "ROUND_COLUMNS",
    "ROUND_NUMERIC",
    "FoundRound",
    "RunList",
    "RunView",
    "find_round",
    "list_runs",
    "round_row",
    "view_run",
]


class RunView(NamedTuple):
    """One run, read without its lock."""

    run: Run
    manifest: Manifest
    records: tuple[JournalRecord, ...]
    rounds: tuple[RoundResult, ...]
    """Closed ones."""
    state: str
    """``running``, ``finished`` or ``interrupted``."""

    @property
    def promotable(self) -> RoundResult | None:
        """The last round whose promotion nobody has applied, if it is the last promotion."""
        promoting = [r for r in self.rounds if r.promotion is not None]
        last = promoting[-1] if promoting else None
        pending = last is not None and last.promotion is not None and not last.promotion.applied
        return last if pending else None

    def document(self) -> dict[str, Any]:
        """The JSON of one run."""
        last = self.records[-1] if self.records else None
        promotable = self.promotable
        return {
            "run": self.run.id,
            "definition": self.manifest.definition,
            "target": self.manifest.target,
            "created": self.manifest.created,
            "agent": self.manifest.config.agent,
            "state": self.state,
            "rounds_planned": self.manifest.config.rounds,
            "records": len(self.records),
            "last": None if last is None else {"time": last.time, "key": last.key},
            "promotable": None if promotable is None else f"{self.run.id}/{promotable.round}",
            "rounds": [_round(result) for result in self.rounds],
        }


def view_run(run: Run) -> RunView:
    """Reads a run, also while it is being written.

    Raises:
        InvalidInputError: If it is no campaign, or its journal is damaged.
    """
    manifest = read_manifest(run)
    is_running = is_being_written(run.journal_path)
    records = read_journal(run.journal_path)
    rounds = closed_rounds(records)
    finished = any(record.key == FINISHED_KEY for record in records)
    state = "finished" if finished else "running" if is_running else "interrupted"
    return RunView(run, manifest, records, rounds, state)


class RunList(NamedTuple):
    """All runs that can be read, oldest first, and what is wrong with the others."""

    views: tuple[RunView, ...]
    problems: tuple[str, ...]


def list_runs(archive: Archive) -> RunList:
    """Every campaign of the archive."""
    views, problems = [], []
    for run in archive.runs():
        try:
            if run.manifest().get("kind") == CAMPAIGN:
                views.append(view_run(run))
        except KoptError as error:
            problems.append(f"{run.id}: {error.message}")
    return RunList(tuple(views), tuple(problems))


class FoundRound(NamedTuple):
    """One closed round and its run."""

    view: RunView
    result: RoundResult


def find_round(archive: Archive, run_id: str, number: str) -> FoundRound:
    """A closed round by its run and number.

    Raises:
        NotFoundError: If there is no such run or round.
    """
    view = view_run(archive.run(run_id))
    for result in view.rounds:
        if str(result.round) == number.removeprefix("r"):
            return FoundRound(view, result)
    closed = ", ".join(str(result.round) for result in view.rounds) or "none"
    raise NotFoundError(
        f"the run {view.run.id} has no closed round {number!r}", hint=f"closed rounds: {closed}"
    )


def _round(result: RoundResult) -> dict[str, Any]:
    comparison = None if result.sweep is None else result.sweep.comparison
    return {
        "round": result.round,
        "bottleneck": result.state.focus.bottleneck,
        "direction": result.direction.id,
        "candidates": len(result.candidates),
        "passed": sum(candidate.passed for candidate in result.candidates),
        "decision": result.decision.label,
        "reason": result.decision.reason,
        "best": None if result.best is None else result.best.model_dump(mode="json"),
        "ratio": None if comparison is None else comparison.ratio,
        "ci": None if comparison is None else comparison.ci,
        "applied": bool(result.promotion is not None and result.promotion.applied),
    }


ROUND_COLUMNS = (
    "run",
    "round",
    "limit",
    "direction",
    "passed",
    "best",
    "sha256",
    "ratio",
    "decision",
    "applied",
)
"""Headings of ``round_row``."""

ROUND_NUMERIC = ("round", "ratio")


def round_row(run_id: str, document: Mapping[str, Any]) -> tuple[object, ...]:
    """One round of ``RunView.document`` as a row of a table."""
    best = document["best"]
    return (
        run_id,
        document["round"],
        document["bottleneck"],
        document["direction"],
        f"{document['passed']} of {document['candidates']}",
        None if best is None else best["name"],
        None if best is None else best["sha256"][:12],
        None if document["ratio"] is None else f"{document['ratio']:.3f}",
        document["decision"],
        "yes" if document["applied"] else "no",
    )
