"""What recorded blocks say of a pair: the decision, and the figures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kopt_harness.bench.regressions import ERROR, Secondary, secondary
from kopt_harness.bench.sequence import Rule
from kopt_harness.bench.stats import (
    MIN_FREEDOM,
    Levels,
    RatioInterval,
    block_levels,
    interval_of,
)
from kopt_harness.evaluate import solution_ref
from kopt_harness.noise import Margin
from kopt_harness.schema import (
    Comparison,
    ComparisonDecision,
    PairedBlock,
    Reason,
    SecondaryRatios,
    Solution,
    Verdict,
    Workload,
    WorkloadComparison,
)
from kopt_harness.setting import Setting

__all__ = [
    "PairFailure",
    "Recorded",
    "Shape",
    "conclude_comparison",
    "levels_of",
    "open_workloads",
    "shape_of",
]

Shape = tuple[tuple[str, int], ...]
"""Axes of a workload in a fixed order."""


@dataclass(frozen=True)
class PairFailure:
    """One of the two was wrong in a timed call; its comparison ends."""

    sha256: str
    verdict: Verdict
    reason: Reason


class Recorded(Protocol):
    """Two solutions, and the blocks that were measured of them."""

    setting: Setting
    a: Solution
    b: Solution
    blocks: dict[str, list[PairedBlock]]
    """By workload uuid."""
    rounds: dict[str, list[int]]
    """Round of each of them, where they were taken in rounds."""
    failure: PairFailure | None
    skipped: dict[str, str]
    """Why a workload is not timed, by uuid."""
    deviations: dict[str, Reason]
    """What the tiers have against a library's peer that is timed, by name."""

    @property
    def margin(self) -> Margin:
        """Of the decision."""
        ...

    @property
    def rule(self) -> Rule:
        """By which it is decided."""
        ...


def conclude_comparison(pair: Recorded, workloads: Sequence[Workload], look: int) -> Comparison:
    """The decision from recorded blocks alone; the same blocks give the same one."""
    options = pair.setting.options
    decision: ComparisonDecision = "ambiguous"
    ratio, ci, reason, beside = None, None, "", None
    levels = levels_of(pair, workloads)
    slower: dict[str, float] = {}
    if pair.failure is not None:
        name = pair.a.name if pair.failure.sha256 == pair.a.sha256 else pair.b.name
        reason = f"{name}: {pair.failure.verdict.value}: {pair.failure.reason.detail}"
    elif levels and all(len(each) >= 2 for each in levels.values()):
        found = pair.rule.look(list(levels.values()), look)
        ratio, ci, decision = found.interval.ratio, found.interval[1:3], found.decision
        reason = "" if decision != "ambiguous" else _why_open(found.interval)
        reason = "; ".join(filter(None, [reason, *pair.skipped.values()]))
        beside = SecondaryRatios(**_beside(pair, levels, workloads).fields())
        tests = pair.rule.regressions(list(levels.values()))
        slower = {uuid: t.adjusted_p for uuid, t in zip(levels, tests, strict=True)}
    else:
        reason = "; ".join(pair.skipped.values()) or "fewer than two blocks of a workload"
    blocks = _row_blocks(pair, workloads)
    rows = [_row(pair, w, blocks[w.uuid], levels.get(w.uuid), slower) for w in workloads]
    return Comparison(
        a=solution_ref(pair.a),
        b=solution_ref(pair.b),
        target=pair.setting.target.name,
        epoch=str(pair.setting.environment["epoch"]),
        ratio=ratio,
        ci=ci,
        confidence=options.confidence,
        margin=pair.margin.value,
        margin_source=pair.margin.source,
        decision=decision,
        reason=reason,
        a_mean_us=_mean(rows, "a_median_us"),
        b_mean_us=_mean(rows, "b_median_us"),
        looks=look,
        processes=max(map(len, levels.values()), default=1) if pair.rule.rounds else 1,
        secondary=beside,
        workloads=tuple(rows),
        deviations=dict(pair.deviations),
    )


def shape_of(workload: Workload) -> Shape:
    """What workloads have in common whose inputs are of equal sizes and distributions."""
    return tuple(sorted(workload.axes.items()))


def levels_of(pair: Recorded, workloads: Sequence[Workload]) -> dict[str, Levels]:
    """Times of A and B by block, of the workloads that are not skipped, by uuid.

    In rounds those of its shape, one a round: the mean over its workloads that were timed in it.
    """
    timed = [w for w in workloads if w.uuid not in pair.skipped]
    if not pair.rule.rounds:
        return {w.uuid: block_levels(pair.blocks.get(w.uuid, ())) for w in timed}
    by_round: dict[Shape, dict[int, list[Levels]]] = {}
    for workload in timed:
        rounds = by_round.setdefault(shape_of(workload), {})
        taken = pair.rounds.get(workload.uuid, ())
        levels = block_levels(pair.blocks.get(workload.uuid, ()))
        for number, level in zip(taken, levels, strict=True):
            rounds.setdefault(number, []).append(level)
    shapes = {
        shape: np.array([np.mean(rounds[n], axis=0) for n in sorted(rounds)]).reshape(-1, 2)
        for shape, rounds in by_round.items()
    }
    return {w.uuid: shapes[shape_of(w)] for w in timed}


def open_workloads(
    pair: Recorded,
    workloads: Sequence[Workload],
    decision: ComparisonDecision,
    *,
    thorough: bool = False,
) -> list[str]:
    """The workloads that are to have more blocks; none where the comparison is at its end.

    Args:
        pair: what was measured.
        workloads: all that are compared.
        decision: of the last look.
        thorough: whether the estimates beside the mean must be settled as well.
    """
    levels = levels_of(pair, workloads)
    if not levels or any(len(each) < 2 for each in levels.values()):
        return []
    uuids, found = list(levels), list(levels.values())
    chosen: list[int] = []
    if decision == "ambiguous":
        chosen = pair.rule.uncertain(found)
    elif decision == "faster":
        chosen = pair.rule.suspicious(found)
        if thorough and not chosen:
            chosen = pair.rule.unsettled(found, _beside(pair, levels, workloads))
    if chosen and pair.rule.rounds:
        # What a process does to one workload it may do to all: they stay in step.
        chosen = [n for n, each in enumerate(found) if len(each) < pair.rule.blocks_max]
    return [uuids[position] for position in chosen]


def _why_open(interval: RatioInterval) -> str:
    if interval.freedom < MIN_FREEDOM:
        return f"too few blocks: {interval.freedom:.1f} degrees of freedom of {MIN_FREEDOM:g}"
    return "the interval straddles the margin"


def _beside(pair: Recorded, levels: dict[str, Levels], workloads: Sequence[Workload]) -> Secondary:
    catalog = pair.setting.catalog
    regimes = catalog.regimes(catalog.resolve(pair.a.definition))
    timed = [w for w in workloads if w.uuid in levels]
    shapes = [shape_of(w) for w in timed]
    names = [regimes[w.uuid] for w in timed]
    return secondary([levels[w.uuid] for w in timed], names, shapes)


def _row_blocks(pair: Recorded, workloads: Sequence[Workload]) -> dict[str, list[PairedBlock]]:
    """By workload, those of its shape where they were taken in rounds."""
    own = {w.uuid: pair.blocks.get(w.uuid, []) for w in workloads}
    if not pair.rule.rounds:
        return own
    shapes: dict[Shape, list[PairedBlock]] = {}
    for workload in workloads:
        shapes.setdefault(shape_of(workload), []).extend(own[workload.uuid])
    return {w.uuid: shapes[shape_of(w)] for w in workloads}


def _row(
    pair: Recorded,
    workload: Workload,
    blocks: Sequence[PairedBlock],
    levels: Levels | None,
    slower: Mapping[str, float],
) -> WorkloadComparison:
    count = 0 if levels is None else len(levels)
    if levels is None or count < 2:
        nothing: dict[str, Any] = {"a_median_us": None, "b_median_us": None, "ratio": None}
        return WorkloadComparison(
            uuid=workload.uuid, axes=workload.axes, ci=None, n=count, **nothing
        )
    p_slower = slower.get(workload.uuid)
    interval = interval_of([levels], pair.setting.options.confidence)
    a_ns = sorted(ns for block in blocks for ns in block.a_ns)
    b_ns = sorted(ns for block in blocks for ns in block.b_ns)
    return WorkloadComparison(
        uuid=workload.uuid,
        axes=workload.axes,
        a_median_us=_median_us(a_ns),
        b_median_us=_median_us(b_ns),
        ratio=interval.ratio,
        ci=(interval.lo, interval.hi),
        n=count,
        p_slower=p_slower,
        slower=p_slower is not None and p_slower < ERROR,
    )


def _median_us(ordered_ns: Sequence[int]) -> float:
    middle = len(ordered_ns) // 2
    return (ordered_ns[middle] + ordered_ns[~middle]) / 2e3


def _mean(rows: Sequence[WorkloadComparison], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return sum(values) / len(values) if values and None not in values else None
