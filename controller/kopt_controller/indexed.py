"""The archive as its index knows it: documents of runs and promotions without their journals.

What is kept of a closed round and of a promotion is written down once, when the index first
meets its record. So ``kopt history`` over thousands of runs loads no model and opens no journal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopt_harness.index import Index, IndexedRun

from .kinds import CAMPAIGN, FINISHED_KEY, PROMOTE, PROMOTE_KEY, SWEEP

if TYPE_CHECKING:
    from .result import RoundResult

__all__ = [
    "ROUND",
    "ArchiveDigester",
    "history_document",
    "last_target",
    "open_index",
    "promotion_document",
    "round_digest",
    "run_document",
    "runs_document",
]

_RESULT = re.compile(r"r\d+/result")
ROUND = "round"
"""Kind of the digests of closed rounds."""
_OUTCOME = "outcome"


class ArchiveDigester:
    """Keeps what a list of runs shows; damaged manifests and rounds become problems."""

    version = "1"

    def manifest(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Who, when, what for.

        Raises:
            InvalidInputError: It is not that of a campaign, or of a promotion.
        """
        kind = manifest.get("kind")
        if kind == CAMPAIGN:
            from .campaign import parse_manifest  # noqa: PLC0415  only where something is new

            parsed = parse_manifest(str(manifest.get("run")), manifest)
            return {
                "created": parsed.created,
                "agent": parsed.config.agent,
                "rounds_planned": parsed.config.rounds,
            }
        if kind == PROMOTE:
            from .result import promoted_candidate  # noqa: PLC0415  only where something is new

            candidate = promoted_candidate(str(manifest.get("run")), manifest)
            return {
                "created": manifest["created"],
                "by": manifest.get("by"),
                "candidate": candidate.model_dump(mode="json"),
            }
        names = ("created", "solutions", "workloads", "workers")
        return {name: manifest.get(name) for name in names} if kind == SWEEP else {}

    def record(self, key: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Closed rounds and what a promotion came to.

        Raises:
            InvalidInputError: An older or newer version wrote it.
        """
        if _RESULT.fullmatch(key):
            from .memory import parse_round  # noqa: PLC0415  only where something is new

            return ROUND, round_digest(parse_round(value))
        if key == PROMOTE_KEY:
            from .memory import parse_outcome  # noqa: PLC0415  only where something is new

            return _OUTCOME, parse_outcome(value).document()
        return None

    def finishes(self, key: str) -> bool:
        """The last record of a campaign, a sweep or a promotion."""
        return key in (FINISHED_KEY, PROMOTE_KEY)


def open_index(local: Path) -> Index:
    """The index of an archive, up to date.

    Args:
        local: ``Root.local``.
    """
    index = Index(local, ArchiveDigester())
    index.refresh()
    return index


def round_digest(result: RoundResult) -> dict[str, Any]:
    """What a list of rounds shows of one, and what finds it again."""
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
        "ci": None if comparison is None or comparison.ci is None else list(comparison.ci),
        "promotion": None if result.promotion is None else result.promotion.applied,
        "measured": [candidate.sha256 for candidate in result.candidates],
    }


def run_document(
    head: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    promotions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The JSON of one run.

    Args:
        head: What is no round.
        rounds: As ``round_digest`` makes them.
        promotions: Documents of those that moved the incumbent after it.
    """
    by_candidate = {p["candidate"]["sha256"]: p["run"] for p in reversed(promotions)}
    shown = [_shown(each, by_candidate) for each in rounds]
    promoting = [each for each in rounds if each["promotion"] is not None]
    last = promoting[-1] if promoting else None
    waits = last is not None and not last["promotion"] and _best(last) not in by_candidate
    promotable = f"{head['run']}/{last['round']}" if waits and last is not None else None
    return {**head, "promotable": promotable, "promotions": list(promotions), "rounds": shown}


def promotion_document(
    head: Mapping[str, Any], outcome: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The JSON of one ``kopt promote``.

    Args:
        head: What was known when it began, and its state.
        outcome: Null where it did not come to its end.
    """
    names = ("incumbent", "incumbent_after", "ratio", "ci", "overridden", "conditions", "detail")
    found = {name: outcome and outcome[name] for name in names}
    return {**head, "applied": outcome is not None and outcome["applied"], **found}


def history_document(
    index: Index,
    *,
    definition: str | None = None,
    target: str | None = None,
    last: int | None = None,
) -> dict[str, Any]:
    """The JSON of ``kopt history``.

    Args:
        index: Of the archive.
        definition: Full id; None: of all.
        target: None: of all.
        last: Only so many runs, the latest.
    """
    every = index.runs(PROMOTE, definition=definition, target=target)
    promotions = [_promotion(index, run) for run in every]
    runs = index.runs(CAMPAIGN, definition=definition, target=target, last=last)
    return {
        "runs": runs_document(index, runs, promotions),
        "runs_in_all": index.count(CAMPAIGN, definition=definition, target=target),
        "promotions": promotions if last is None else promotions[-last:],
        "problems": index.problems(),
    }


def runs_document(
    index: Index, runs: Sequence[IndexedRun], promotions: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Documents of campaigns.

    Args:
        index: Of the archive.
        runs: Those that can be read are shown.
        promotions: All of their definitions and targets; None: they are looked up.
    """
    if promotions is None:
        promotions = [_promotion(index, run) for run in index.runs(PROMOTE)]
    return [_campaign(index, run, promotions) for run in runs if run.manifest]


def last_target(index: Index, sha256: str) -> str | None:
    """On which target a candidate was measured last; None where no round had it."""
    for run in reversed(index.runs(CAMPAIGN)):
        if any(sha256 in each["measured"] for each in index.digests(run.id, ROUND)):
            return str(run.target)
    return None


def _campaign(
    index: Index, run: IndexedRun, promotions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    head = {
        "run": run.id,
        "kind": CAMPAIGN,
        "definition": run.definition,
        "target": run.target,
        "created": run.manifest["created"],
        "agent": run.manifest["agent"],
        "state": run.state,
        "rounds_planned": run.manifest["rounds_planned"],
        "records": run.records,
        "last": run.last,
    }
    later = [
        each
        for each in promotions
        if each["applied"]
        and (each["definition"], each["target"]) == (run.definition, run.target)
        and _moment(each["run"]) > _moment(run.id)
    ]
    return run_document(head, index.digests(run.id, ROUND), later)


def _promotion(index: Index, run: IndexedRun) -> dict[str, Any]:
    outcome = index.digests(run.id, _OUTCOME)
    head = {
        "run": run.id,
        "kind": PROMOTE,
        "definition": run.definition,
        "target": run.target,
        "created": run.manifest.get("created"),
        "by": run.manifest.get("by"),
        "state": run.state,
        "candidate": run.manifest.get("candidate", {"name": "", "sha256": ""}),
    }
    return promotion_document(head, outcome[0] if outcome else None)


def _shown(each: Mapping[str, Any], by_candidate: Mapping[str, str]) -> dict[str, Any]:
    promoted_by = by_candidate.get(_best(each) or "")
    kept = {name: value for name, value in each.items() if name not in ("promotion", "measured")}
    applied = promoted_by is not None or bool(each["promotion"])
    return kept | {"applied": applied, "promoted_by": promoted_by}


def _best(each: Mapping[str, Any]) -> str | None:
    return None if each["best"] is None else str(each["best"]["sha256"])


def _moment(run: str) -> tuple[str, str]:
    return run[: len("20261129-141722")], run.rpartition("-")[2]
