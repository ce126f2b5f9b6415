"""Where the figures of a pair come from: the sweep of a round, or committed evidence.

Both end as one ``Pair``, so that nothing that is shown depends on which of them it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.bench.stats import block_levels, interval_of
from kopt_harness.block_records import (
    MIN_BLOCKS,
    incumbent_median_us,
    paired_blocks,
    pooled_by_shape,
    retained_blocks,
)
from kopt_harness.errors import InvalidInputError
from kopt_harness.files import read_json
from kopt_harness.journal import JournalRecord, read_selected
from kopt_harness.schema import Comparison, PairedBlock

from ..history import RunView
from ..kinds import FINISHED_KEY
from ..result import RoundResult
from .model import BlockSamples, Standing

__all__ = [
    "Pair",
    "PairRow",
    "is_summary",
    "retained_pair",
    "retained_samples",
    "round_pair",
    "round_samples",
]

_RESULT = re.compile(r"r\d+/result")


class PairRow(NamedTuple):
    """One workload of a pair."""

    uuid: str
    axes: dict[str, int]
    verdict: str
    candidate_us: float | None
    incumbent_us: float | None
    ratio: float | None
    ci: tuple[float, float] | None
    blocks: int
    slower: bool
    floor_us: float | None
    """As the evidence has it; null where it has none."""
    baselines_us: Mapping[str, float]


class Pair(NamedTuple):
    """A candidate and the incumbent that it was compared with, over all workloads."""

    candidate: Standing
    incumbent: Standing
    ratio: float | None
    ci: tuple[float, float] | None
    confidence: float
    candidate_mean_us: float | None
    incumbent_mean_us: float | None
    rows: tuple[PairRow, ...]
    baselines: Mapping[str, Mapping[str, Any]]
    """By name: ``mean_us``, ``ratio`` (baseline over candidate) and ``ci``."""
    date: str
    epoch: str
    environment: Mapping[str, Any]
    source: str
    label: str
    reason: str
    applied: bool
    committed: bool = False
    provisional: bool = False
    limits: str = ""


def is_summary(key: str) -> bool:
    """Whether a record says something of a whole round or of a session."""
    return key.startswith("session/") or key == FINISHED_KEY or _RESULT.fullmatch(key) is not None


def round_pair(view: RunView, result: RoundResult) -> Pair | None:
    """The pair that a round has swept; None where it has compared none."""
    comparison = None if result.sweep is None else result.sweep.comparison
    if comparison is None or result.sweep is None:
        return None
    path, end = view.run.journal_path, "/outcome"
    prefix = f"r{result.round}/sweep/"
    swept = read_selected(path, lambda key: key.startswith(prefix) and key.endswith(end))
    outcome: Mapping[str, Any] = swept[0].value if swept else {}
    return Pair(
        candidate=Standing(name=comparison.b.name, sha256=comparison.b.sha256),
        incumbent=Standing(name=comparison.a.name, sha256=comparison.a.sha256),
        ratio=comparison.ratio,
        ci=comparison.ci,
        confidence=comparison.confidence,
        candidate_mean_us=comparison.b_mean_us,
        incumbent_mean_us=comparison.a_mean_us,
        rows=_rows(comparison, outcome),
        baselines=_baselines(outcome),
        date=_closed(view.records, result),
        epoch=comparison.epoch,
        environment=_session(view.records, comparison.epoch),
        source=f"{view.run.id}/{result.round}",
        label=result.decision.label,
        reason=result.decision.reason,
        applied=result.promotion is not None and result.promotion.applied,
        committed=result.committed,
    )


def _rows(comparison: Comparison, outcome: Mapping[str, Any]) -> tuple[PairRow, ...]:
    evaluation = outcome.get("evaluation") or {}
    verdicts = {row["uuid"]: row["verdict"] for row in evaluation.get("workloads", ())}
    beside: dict[str, dict[str, float]] = {}
    for name, other in (outcome.get("baselines") or {}).items():
        for row in other["workloads"]:
            if row["a_median_us"] is not None:
                beside.setdefault(row["uuid"], {})[name] = row["a_median_us"]
    return tuple(
        PairRow(
            uuid=row.uuid,
            axes=row.axes,
            verdict=verdicts.get(row.uuid, ""),
            candidate_us=row.b_median_us,
            incumbent_us=row.a_median_us,
            ratio=row.ratio,
            ci=row.ci,
            blocks=row.n,
            slower=row.slower,
            floor_us=None,
            baselines_us=beside.get(row.uuid, {}),
        )
        for row in comparison.workloads
    )


def _baselines(outcome: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, other in (outcome.get("baselines") or {}).items():
        ratio, ci = other["ratio"], other["ci"]
        found[name] = {
            "mean_us": other["a_mean_us"],
            "ratio": 1 / ratio if ratio else None,
            "ci": [1 / ci[1], 1 / ci[0]] if ci else None,
        }
    return found


def _closed(records: Iterable[JournalRecord], result: RoundResult) -> str:
    key = f"r{result.round}/result"
    return next((record.time for record in records if record.key == key), "")


def _session(records: Iterable[JournalRecord], epoch: str) -> Mapping[str, Any]:
    """The environment of an epoch; of any session where none has that epoch."""
    sessions = [r.value["environment"] for r in records if r.key.startswith("session/")]
    same = [each for each in sessions if each.get("epoch") == epoch]
    found: Mapping[str, Any] = (same or sessions or [{}])[-1]
    return found


def retained_pair(folder: Path) -> Pair:
    """The pair of committed evidence.

    Args:
        folder: With ``summary.json``, as ``artifacts/retained/<definition>/<target>``.

    Raises:
        InvalidInputError: If its files cannot be read, or lack what they must have.
    """
    summary = read_json(folder / "summary.json", "retained evidence")
    decision = read_json(folder / "decision.json", "retained evidence")
    try:
        return _retained(folder, summary, decision, retained_blocks(folder))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"the evidence in {str(folder)!r} lacks what it must have: {error!r}",
            hint="restore it with git, or promote again",
        ) from error


def _retained(
    folder: Path,
    summary: Mapping[str, Any],
    decision: Mapping[str, Any],
    blocks: Mapping[str, Sequence[PairedBlock]],
) -> Pair:
    old = summary["incumbent"]
    confidence = old["confidence"]
    pooled = pooled_by_shape(summary["workloads"], blocks)
    rows = [
        _retained_row(row, pooled.get(row["uuid"], ()), confidence) for row in summary["workloads"]
    ]
    return Pair(
        candidate=Standing(**summary["solution"]),
        incumbent=Standing(name=old["name"], sha256=old["sha256"]),
        ratio=old["ratio"],
        ci=None if old["ci"] is None else (old["ci"][0], old["ci"][1]),
        confidence=confidence,
        candidate_mean_us=summary["mean_us"],
        incumbent_mean_us=old["mean_us"],
        rows=tuple(rows),
        baselines=summary["baselines"],
        date=summary["date"],
        epoch=summary["epoch"],
        environment=summary["environment"],
        source=f"retained/{folder.parent.name}/{folder.name}",
        label=decision["decision"]["label"],
        reason=decision["decision"]["reason"],
        applied=True,
        provisional=bool(summary.get("provisional")),
        limits=summary.get("limits", ""),
    )


def _retained_row(
    row: Mapping[str, Any], blocks: Sequence[PairedBlock], confidence: float
) -> PairRow:
    """What the summary says, and out of the blocks what it leaves out."""
    ratio = ci = None
    if len(blocks) >= MIN_BLOCKS:
        found = interval_of([block_levels(blocks)], confidence)
        ratio, ci = found.ratio, (found.lo, found.hi)
    return PairRow(
        uuid=row["uuid"],
        axes=row["axes"],
        verdict="pass",
        candidate_us=row["median_us"],
        incumbent_us=incumbent_median_us(blocks),
        ratio=ratio,
        ci=ci,
        blocks=len(blocks),
        slower=False,
        floor_us=row.get("floor_us"),
        # A baseline that failed, or was not timed on a workload, has no number there.
        baselines_us={n: us for n, us in row.get("baselines", {}).items() if us is not None},
    )


def retained_samples(folder: Path) -> dict[str, BlockSamples]:
    """Samples of committed evidence, by workload; empty where there are none.

    Raises:
        InvalidInputError: If the file cannot be read.
    """
    return _samples(retained_blocks(folder))


def round_samples(view: RunView, result: RoundResult) -> dict[str, BlockSamples]:
    """Samples of the sweep of a round, by workload."""
    prefix = f"r{result.round}/sweep/"
    records = read_selected(view.run.journal_path, lambda key: key.startswith(prefix))
    return _samples(paired_blocks(((record.key, record.value) for record in records), result.round))


def _samples(blocks: Mapping[str, Sequence[PairedBlock]]) -> dict[str, BlockSamples]:
    return {
        uuid: BlockSamples(
            uuid=uuid,
            axes={},
            blocks=len(each),
            candidate_ns=tuple(ns for block in each for ns in block.b_ns),
            incumbent_ns=tuple(ns for block in each for ns in block.a_ns),
        )
        for uuid, each in blocks.items()
    }
