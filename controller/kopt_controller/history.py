"""Runs and promotions as they lie in the archive: what ``kopt status`` and ``history`` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.errors import InvalidInputError, KoptError, NotFoundError
from kopt_harness.journal import JournalRecord, is_being_written, read_journal
from pydantic import ValidationError

from .campaign import CAMPAIGN, FINISHED_KEY, Manifest, read_manifest
from .memory import closed_rounds, promote_outcome
from .result import CandidateRef, PromoteOutcome, RoundResult

__all__ = [
    "PROMOTE",
    "PROMOTION_COLUMNS",
    "PROMOTION_NUMERIC",
    "ROUND_COLUMNS",
    "ROUND_NUMERIC",
    "FoundRound",
    "PromotionView",
    "RunList",
    "RunView",
    "find_round",
    "find_rounds",
    "find_run",
    "list_runs",
    "promotion_row",
    "round_row",
    "view_run",
]

PROMOTE = "promote"
"""Kind of the run that a ``kopt promote`` makes, in its manifest."""


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
        outcome = None if self.outcome is None else self.outcome.document()
        return {
            "run": self.run.id,
            "kind": PROMOTE,
            "definition": self.definition,
            "target": self.target,
            "created": self.created,
            "by": self.by,
            "state": self.state,
            "candidate": self.candidate.model_dump(mode="json"),
            "applied": self.applied,
            "incumbent": outcome and outcome["incumbent"],
            "incumbent_after": outcome and outcome["incumbent_after"],
            "ratio": outcome and outcome["ratio"],
            "ci": outcome and outcome["ci"],
            "overridden": outcome and outcome["overridden"],
            "conditions": outcome and outcome["conditions"],
            "detail": outcome and outcome["detail"],
        }


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

    def promoted_by(self, result: RoundResult) -> PromotionView | None:
        """The ``kopt promote`` that has applied what a round has found."""
        best = None if result.best is None else result.best.sha256
        return next((each for each in self.promotions if each.candidate.sha256 == best), None)

    @property
    def promotable(self) -> RoundResult | None:
        """The last round whose promotion nobody has applied, if it is the last promotion."""
        promoting = [r for r in self.rounds if r.promotion is not None]
        last = promoting[-1] if promoting else None
        if last is None or last.promotion is None or last.promotion.applied:
            return None
        return last if self.promoted_by(last) is None else None

    def document(self) -> dict[str, Any]:
        """The JSON of one run."""
        last = self.records[-1] if self.records else None
        promotable = self.promotable
        return {
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
            "promotable": None if promotable is None else f"{self.run.id}/{promotable.round}",
            "promotions": [each.document() for each in self.promotions],
            "rounds": [_round(result, self.promoted_by(result)) for result in self.rounds],
        }


def view_run(run: Run, promotions: Sequence[PromotionView] = ()) -> RunView:
    """Reads a run, also while it is being written.

    Args:
        run: A campaign.
        promotions: All of the archive; those that concern the run are kept.

    Raises:
        InvalidInputError: If it is no campaign, or its journal is damaged.
    """
    manifest = read_manifest(run)
    is_running = is_being_written(run.journal_path)
    records = read_journal(run.journal_path)
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
    try:
        sha256 = manifest["candidate"]
        candidate = CandidateRef(name=manifest.get("candidate_name", ""), sha256=sha256)
        return PromotionView(
            run=run,
            created=manifest["created"],
            by=manifest.get("by"),
            definition=manifest["definition"],
            target=manifest["target"],
            candidate=candidate,
            records=records,
            outcome=outcome,
            state=_state(is_running, outcome is not None),
        )
    except (KeyError, ValidationError) as error:
        raise InvalidInputError(
            f"the run {run.id!r} is no promotion: {error}", hint="kopt history lists the runs"
        ) from error


def _state(is_running: bool, is_finished: bool) -> str:
    return "finished" if is_finished else "running" if is_running else "interrupted"


class RunList(NamedTuple):
    """All runs that can be read, oldest first, and what is wrong with the others."""

    views: tuple[RunView, ...]
    problems: tuple[str, ...]
    promotions: tuple[PromotionView, ...] = ()
    """Every ``kopt promote``, applied or not."""


def list_runs(archive: Archive) -> RunList:
    """Every campaign and every promotion of the archive."""
    campaigns: list[Run] = []
    promotions: list[PromotionView] = []
    views: list[RunView] = []
    problems: dict[str, str] = {}
    for run in archive.runs():
        try:
            manifest = run.manifest()
            if manifest.get("kind") == CAMPAIGN:
                campaigns.append(run)
            elif manifest.get("kind") == PROMOTE:
                promotions.append(_view_promotion(run, manifest))
        except KoptError as error:
            problems[run.id] = error.message
    for run in campaigns:
        try:
            views.append(view_run(run, promotions))
        except KoptError as error:
            problems[run.id] = error.message
    named = tuple(f"{run}: {problem}" for run, problem in sorted(problems.items()))
    return RunList(tuple(views), named, tuple(promotions))


def find_run(archive: Archive, run_id: str | None) -> RunView | PromotionView | None:
    """One run, with what has become of it.

    Args:
        archive: Of this machine.
        run_id: Its id or an unambiguous part of it; None: the latest campaign, or where there
            is none the latest promotion.

    Raises:
        NotFoundError: If there is no such run.
        InvalidInputError: If it cannot be read.
    """
    if run_id is None:
        found = list_runs(archive)
        latest: tuple[RunView | PromotionView, ...] = found.views or found.promotions
        return latest[-1] if latest else None
    run = archive.run(run_id)
    manifest = run.manifest()
    if manifest.get("kind") == PROMOTE:
        return _view_promotion(run, manifest)
    return view_run(run, list_runs(archive).promotions)


class FoundRound(NamedTuple):
    """One closed round and its run."""

    view: RunView
    result: RoundResult


def find_round(archive: Archive, run_id: str, number: str) -> FoundRound:
    """A closed round by its run and number.

    Raises:
        NotFoundError: If there is no such run or round.
    """
    view = view_run(archive.run(run_id), list_runs(archive).promotions)
    for result in view.rounds:
        if str(result.round) == number.removeprefix("r"):
            return FoundRound(view, result)
    closed = ", ".join(str(result.round) for result in view.rounds) or "none"
    raise NotFoundError(
        f"the run {view.run.id} has no closed round {number!r}", hint=f"closed rounds: {closed}"
    )


def find_rounds(archive: Archive, run_id: str | None, number: str | None) -> tuple[FoundRound, ...]:
    """One closed round of a run, or all of them; none where the run has closed none yet.

    Args:
        archive: Of this machine.
        run_id: Id or a part of it; None: the latest campaign.
        number: Of the round; None: all.

    Raises:
        NotFoundError: If there is no such run or round.
    """
    if run_id is None:
        views = list_runs(archive).views
        if not views:
            return ()
        run_id = views[-1].run.id
    if number is not None:
        return (find_round(archive, run_id, number),)
    view = view_run(archive.run(run_id), list_runs(archive).promotions)
    return tuple(FoundRound(view, result) for result in view.rounds)


def _round(result: RoundResult, promoted_by: PromotionView | None) -> dict[str, Any]:
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
        "applied": promoted_by is not None
        or bool(result.promotion is not None and result.promotion.applied),
        "promoted_by": None if promoted_by is None else promoted_by.run.id,
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
        "by command" if document["promoted_by"] else "yes" if document["applied"] else "no",
    )


PROMOTION_COLUMNS = ("run", "when", "by", "candidate", "sha256", "against", "ratio", "outcome")
"""Headings of ``promotion_row``."""

PROMOTION_NUMERIC = ("ratio",)


def promotion_row(document: Mapping[str, Any]) -> tuple[object, ...]:
    """One document of ``PromotionView`` as a row of a table."""
    incumbent, conditions = document["incumbent"], document["conditions"] or ()
    failed = ", ".join(each["name"] for each in conditions if not each["ok"])
    ended = "promoted" if document["applied"] else f"refused: {failed or document['detail']}"
    return (
        document["run"],
        document["created"],
        document["by"],
        document["candidate"]["name"] or None,
        document["candidate"]["sha256"][:12],
        None if incumbent is None else incumbent["name"],
        None if document["ratio"] is None else f"{document['ratio']:.3f}",
        document["state"] if document["detail"] is None else ended,
    )
