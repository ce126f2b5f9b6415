"""Runs and promotions as they lie in the archive: what ``kopt status`` and ``history`` show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.errors import NotFoundError
from kopt_harness.index import Index, IndexedRun
from kopt_harness.journal import JournalRecord, is_being_written, read_journal

from .campaign import Manifest, read_manifest
from .indexed import ROUND, open_index, promotion_document, round_digest, run_document
from .kinds import CAMPAIGN, FINISHED_KEY, PROMOTE
from .memory import closed_rounds, promote_outcome
from .result import CandidateRef, PromoteOutcome, Review, RoundResult, promoted_candidate
from .steering import STEER_FILE, Steer, read_steers

__all__ = [
    "FoundRound",
    "PromotionView",
    "RunView",
    "find_round",
    "find_rounds",
    "find_run",
    "last_review",
    "list_promotions",
    "newest_run",
    "view_run",
]

_STEER = re.compile(r"r\d+/steer")


class PromotionView(NamedTuple):
    """One ``kopt promote``, read without its lock."""

    run: Run
    created: str
    by: str | None
    """Who asked for it; null where an older version did not record it."""
    definition: str
    target: str
    candidate: CandidateRef
    records: tuple[JournalRecord, ...]
    outcome: PromoteOutcome | None
    """Null where it did not come to its end, or an older version did not record it."""
    state: str
    """``running``, ``finished`` or ``interrupted``."""

    @property
    def applied(self) -> bool:
        """Whether the incumbent moved."""
        return self.outcome is not None and self.outcome.applied

    def document(self) -> dict[str, Any]:
        """The JSON of one promotion."""
        head = {
            "run": self.run.id,
            "kind": PROMOTE,
            "definition": self.definition,
            "target": self.target,
            "created": self.created,
            "by": self.by,
            "state": self.state,
            "candidate": self.candidate.model_dump(mode="json"),
        }
        outcome = None if self.outcome is None else self.outcome.document()
        return promotion_document(head, outcome)


class RunView(NamedTuple):
    """One run, read without its lock."""

    run: Run
    manifest: Manifest
    records: tuple[JournalRecord, ...]
    rounds: tuple[RoundResult, ...]
    """Closed ones."""
    state: str
    """``running``, ``finished`` or ``interrupted``."""
    promotions: tuple[PromotionView, ...] = ()
    """Later ``kopt promote`` that moved the incumbent of its definition and target."""

    @property
    def pending_steers(self) -> tuple[Steer, ...]:
        """What people have said and no round has taken yet.

        Raises:
            InvalidInputError: If the file of steers is damaged.
        """
        taken = (r.value["steers"] for r in self.records if _STEER.fullmatch(r.key))
        return read_steers(self.run.folder / STEER_FILE)[max(map(len, taken), default=0) :]

    def document(self) -> dict[str, Any]:
        """The JSON of one run."""
        last = self.records[-1] if self.records else None
        head = {
            "run": self.run.id,
            "kind": CAMPAIGN,
            "definition": self.manifest.definition,
            "target": self.manifest.target,
            "created": self.manifest.created,
            "agent": self.manifest.config.agent,
            "state": self.state,
            "rounds_planned": self.manifest.config.rounds,
            "records": len(self.records),
            "last": None if last is None else {"time": last.time, "key": last.key},
        }
        promotions = [each.document() for each in self.promotions]
        return run_document(head, [round_digest(each) for each in self.rounds], promotions)


def view_run(
    run: Run,
    promotions: Sequence[PromotionView] = (),
    read: Callable[[Path], tuple[JournalRecord, ...]] = read_journal,
) -> RunView:
    """Reads a run, also while it is being written.

    Args:
        run: A campaign.
        promotions: All of the archive; those that concern the run are kept.
        read: Gives the records; what leaves some out must keep those that close rounds and end
            the run.

    Raises:
        InvalidInputError: If it is no campaign, or its journal is damaged.
    """
    manifest = read_manifest(run)
    is_running = is_being_written(run.journal_path)
    records = read(run.journal_path)
    rounds = closed_rounds(records)
    finished = any(record.key == FINISHED_KEY for record in records)
    later = tuple(
        each
        for each in promotions
        if each.applied
        and (each.definition, each.target) == (manifest.definition, manifest.target)
        and each.run.moment > run.moment
    )
    return RunView(run, manifest, records, rounds, _state(is_running, finished), later)


def _view_promotion(run: Run, manifest: Mapping[str, Any]) -> PromotionView:
    """Reads the run of a ``kopt promote``.

    Raises:
        InvalidInputError: If its manifest or journal is damaged.
    """
    is_running = is_being_written(run.journal_path)
    records = read_journal(run.journal_path)
    outcome = promote_outcome(records)
    return PromotionView(
        run=run,
        created=manifest["created"],
        by=manifest.get("by"),
        definition=manifest["definition"],
        target=manifest["target"],
        candidate=promoted_candidate(run.id, manifest),
        records=records,
        outcome=outcome,
        state=_state(is_running, outcome is not None),
    )


def _state(is_running: bool, is_finished: bool) -> str:
    return "finished" if is_finished else "running" if is_running else "interrupted"


def find_run(archive: Archive, run_id: str | None) -> RunView | PromotionView | None:
    """One run, with what has become of it.

    Args:
        archive: Of this machine.
        run_id: Its id or an unambiguous part of it; None: the newest campaign that is running,
            else the newest, or where there is none the newest promotion.

    Raises:
        NotFoundError: If there is no such run.
        InvalidInputError: If it cannot be read.
    """
    with open_index(archive.folder) as index:
        if run_id is None:
            latest = newest_run(index) or newest_run(index, PROMOTE)
            if latest is None:
                return None
            run_id = latest.id
        run = archive.run(run_id)
        manifest = run.manifest()
        if manifest.get("kind") == PROMOTE:
            return _view_promotion(run, manifest)
        return view_run(run, list_promotions(index))


def newest_run(index: Index, kind: str = CAMPAIGN) -> IndexedRun | None:
    """The run that is meant where none is named: the newest that is running, else the newest.

    A run that ended at once, as one that was refused, hides no running one.

    Args:
        index: Of the archive.
        kind: Of its manifest.
    """
    known = [run for run in reversed(index.runs(kind)) if run.manifest]
    running = (run for run in known if run.state == "running")
    return next(running, known[0] if known else None)


def _newest_closed(index: Index) -> IndexedRun | None:
    """The newest campaign that has closed a round."""
    known = (run for run in reversed(index.runs(CAMPAIGN)) if run.manifest)
    return next((run for run in known if index.digests(run.id, ROUND)), None)


def list_promotions(index: Index) -> tuple[PromotionView, ...]:
    """Every ``kopt promote`` that can be read, applied or not, oldest first."""
    found = [Run(each.folder) for each in index.runs(PROMOTE) if each.manifest]
    return tuple(_view_promotion(run, run.manifest()) for run in found)


def _view_of(archive: Archive, run_id: str) -> RunView:
    with open_index(archive.folder) as index:
        return view_run(archive.run(run_id), list_promotions(index))


class FoundRound(NamedTuple):
    """One closed round and its run."""

    view: RunView
    result: RoundResult


def find_round(archive: Archive, run_id: str, number: str) -> FoundRound:
    """A closed round by its run and number.

    Raises:
        NotFoundError: If there is no such run or round.
    """
    view = _view_of(archive, run_id)
    for result in view.rounds:
        if str(result.round) == number.removeprefix("r"):
            return FoundRound(view, result)
    closed = ", ".join(str(result.round) for result in view.rounds) or "none"
    raise NotFoundError(
        f"the run {view.run.id} has no closed round {number!r}", hint=f"closed rounds: {closed}"
    )


def last_review(archive: Archive, sha256: str) -> Review | None:
    """The newest review of a candidate on record; None where nobody has read it.

    Args:
        archive: Of this machine.
        sha256: Of the candidate.
    """
    with open_index(archive.folder) as index:
        places = [
            (run.id, str(digest["round"]))
            for run in reversed(index.runs(CAMPAIGN))
            for digest in reversed(index.digests(run.id, ROUND))
            if sha256 in digest["measured"]
        ]
    for run_id, number in places:
        review = find_round(archive, run_id, number).result.review
        if review is not None and review.candidate.sha256 == sha256:
            return review
    return None


def find_rounds(archive: Archive, run_id: str | None, number: str | None) -> tuple[FoundRound, ...]:
    """One closed round of a run, or all of them; none where the run has closed none yet.

    Args:
        archive: Of this machine.
        run_id: Id or a part of it; None: the newest campaign that has closed one.
        number: Of the round; None: all.

    Raises:
        NotFoundError: If there is no such run or round.
    """
    if run_id is None:
        with open_index(archive.folder) as index:
            latest = _newest_closed(index)
        if latest is None:
            return ()
        run_id = latest.id
    if number is not None:
        return (find_round(archive, run_id, number),)
    view = _view_of(archive, run_id)
    return tuple(FoundRound(view, result) for result in view.rounds)
