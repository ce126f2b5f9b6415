"""Rounds in their order: what each tried, what came of it, and how fast the best one then was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from kopt_harness.schema import Verdict

from ..history import PromotionView, RunView
from ..result import Candidate, CandidateRef, PromoteOutcome, RoundResult
from ..steering import Steer
from .model import (
    CandidatePoint,
    DecisionView,
    DirectionRow,
    Interval,
    Outcome,
    RoundPoint,
    Standing,
    SteerPoint,
)

__all__ = [
    "Placed",
    "candidate_points",
    "decision_views",
    "direction_rows",
    "outcome_of",
    "place_rounds",
    "round_points",
    "steer_points",
]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Placed(NamedTuple):
    """A round where it stands among all rounds that are shown."""

    order: int
    """From 1."""
    view: RunView
    result: RoundResult
    time: str
    """When it was closed."""
    before: float | None
    """Time of what it started from over that of the first incumbent of the segment."""
    after: float | None
    """The same of what was retained after it."""
    reached: float | None
    """The same of what it has swept, by that sweep: against what is retained, or a version."""
    segment: int
    retained: CandidateRef
    """After it."""
    promoted_by: PromotionView | None
    """The ``kopt promote`` that followed it with its candidate."""

    @property
    def applied(self) -> bool:
        """Whether its candidate was promoted: a version of a line is not."""
        return _is_promoted(self.result) or self.promoted_by is not None


def place_rounds(views: Iterable[RunView]) -> tuple[Placed, ...]:
    """All rounds of runs in their order, with the level that their incumbents had.

    A level is the product of the ratios by which incumbents replaced each other. Where a round
    starts from an incumbent of which no earlier round knows, a new segment begins at 1. A version
    that a line took without a promotion has a level for the rounds that start from it alone.

    Args:
        views: Oldest first.
    """
    levels: dict[str, float | None] = {}
    placed: list[Placed] = []
    segment = 0
    for view in views:
        times = {record.key: record.time for record in view.records}
        behind: dict[str, CandidateRef] = {}
        for result in view.rounds:
            started = result.incumbent_before
            if started.sha256 not in levels:
                segment += 1
                levels = {started.sha256: 1.0}
            before = levels[started.sha256]
            by = _promoted_by(view, result)
            retained = _promoted(result, by) or behind.get(started.sha256, started)
            reached = _level(levels, before, result, None)
            moved = result.incumbent if result.committed else retained
            if moved.sha256 != started.sha256 and (result.committed or _promoted(result, by)):
                levels[moved.sha256] = _level(levels, before, result, by)
            behind.pop(retained.sha256, None)
            if moved.sha256 != retained.sha256:
                behind[moved.sha256] = retained
            now = levels.get(retained.sha256)
            time = times.get(f"r{result.round}/result", "")
            order = len(placed) + 1
            placed.append(
                Placed(order, view, result, time, before, now, reached, segment, retained, by)
            )
    return tuple(placed)


def _promoted_by(view: RunView, result: RoundResult) -> PromotionView | None:
    """The first ``kopt promote`` of what this round has swept, where no later round did."""
    if result.best is None:
        return None
    last = [r for r in view.rounds if r.best is not None and r.best.sha256 == result.best.sha256]
    if last[-1] is not result:
        return None
    found = (p for p in view.promotions if p.candidate.sha256 == result.best.sha256)
    return next(found, None)


def _is_promoted(result: RoundResult) -> bool:
    return result.promotion is not None and result.promotion.applied


def _promoted(result: RoundResult, by: PromotionView | None) -> CandidateRef | None:
    """What the round has made the incumbent, itself or by the ``kopt promote`` after it."""
    if _is_promoted(result):
        return result.incumbent
    return None if by is None else by.candidate


def _level(
    levels: Mapping[str, float | None],
    before: float | None,
    result: RoundResult,
    by: PromotionView | None,
) -> float | None:
    """Of the candidate of a round: its ratio, times the level of what it was held against."""
    comparison = None if result.sweep is None else result.sweep.comparison
    ratio, against = (None, None) if comparison is None else (comparison.ratio, comparison.a.sha256)
    if by is not None and by.outcome is not None and by.outcome.ratio is not None:
        ratio, against = by.outcome.ratio, by.outcome.incumbent.sha256
    level = before if against is None else levels.get(against, before)
    return None if level is None or ratio is None else level * ratio


def round_points(placed: Sequence[Placed]) -> tuple[RoundPoint, ...]:
    """The trajectory, a point a round."""
    return tuple(_round_point(each) for each in placed)


def _round_point(each: Placed) -> RoundPoint:
    result = each.result
    comparison = None if result.sweep is None else result.sweep.comparison
    return RoundPoint(
        order=each.order,
        run=each.view.run.id,
        round=result.round,
        time=each.time,
        direction=result.direction.id,
        regime=result.state.focus.regime,
        bottleneck=result.state.focus.bottleneck,
        candidates=len(result.candidates),
        passed=sum(candidate.passed for candidate in result.candidates),
        refused=len(result.refused),
        label=result.decision.label,
        applied=each.applied,
        ratio=None if comparison is None else comparison.ratio,
        ci=None if comparison is None else comparison.ci,
        incumbent=Standing(name=each.retained.name, sha256=each.retained.sha256),
        best=each.after,
        segment=each.segment,
    )


def candidate_points(placed: Iterable[Placed]) -> tuple[CandidatePoint, ...]:
    """Every candidate that was measured."""
    return tuple(
        _candidate_point(each, candidate) for each in placed for candidate in each.result.candidates
    )


def _candidate_point(each: Placed, candidate: Candidate) -> CandidatePoint:
    result = each.result
    swept = result.best is not None and result.best.sha256 == candidate.sha256
    ratio, ci, level = candidate.ratio, candidate.ci, None
    if swept and result.sweep is not None and result.sweep.comparison is not None:
        ratio, ci = result.sweep.comparison.ratio, result.sweep.comparison.ci
        level = each.reached
    elif ratio is not None and each.before is not None:
        level = each.before * ratio
    gate_flags = [flag["code"] for flag in candidate.gate.get("flags", ())]
    swept_flags = [flag.code for flag in result.sweep.flags] if swept and result.sweep else []
    return CandidatePoint(
        order=each.order,
        run=each.view.run.id,
        round=result.round,
        name=candidate.name,
        sha256=candidate.sha256,
        language=candidate.language,
        technique=candidate.technique or candidate.family or "",
        direction=result.direction.id,
        verdict=candidate.verdict,
        passed=candidate.passed,
        swept=swept,
        promoted=swept and each.applied,
        outcome=outcome_of(candidate.verdict, ci),
        ratio=ratio,
        ci=ci,
        level=level,
        detail=_detail(candidate),
        flags=tuple(dict.fromkeys([*gate_flags, *swept_flags])),
    )


def _detail(candidate: Candidate) -> str:
    """What was done to it; of a wrong one, what was wrong."""
    if candidate.verdict is Verdict.PASS:
        return candidate.rationale
    reason = candidate.gate.get("reason") or {}
    return str(reason.get("detail", ""))


def outcome_of(verdict: str, ci: Interval | None) -> Outcome:
    """What one candidate has shown: by the interval, not by its middle."""
    if verdict in (Verdict.INFRA, Verdict.INVALID):
        return "not-judged"
    if verdict != Verdict.PASS:
        return "wrong"
    if ci is None or ci[0] <= 1 <= ci[1]:
        return "undecided"
    return "faster" if ci[1] < 1 else "slower"


def steer_points(
    placed: Sequence[Placed], said: Mapping[str, Sequence[Steer]]
) -> tuple[SteerPoint, ...]:
    """What people said, each at the first round that heard it.

    Args:
        placed: Rounds.
        said: Steers by run, also those that no round has heard yet.
    """
    found: list[SteerPoint] = []
    for run, steers in said.items():
        rounds = [each for each in placed if each.view.run.id == run]
        for number, steer in enumerate(steers):
            heard = (each.order for each in rounds if len(each.result.steers) > number)
            point = SteerPoint(
                order=next(heard, 0),
                run=run,
                time=steer.time,
                kind=steer.kind,
                value=steer.value,
                by=steer.by,
            )
            found.append(point)
    return tuple(found)


def decision_views(
    placed: Iterable[Placed], promotions: Iterable[PromotionView]
) -> tuple[DecisionView, ...]:
    """Decisions of rounds, and what every ``kopt promote`` came to, oldest first."""
    of_rounds = [_round_decision(each) for each in placed]
    of_people = [
        _promotion_decision(each, each.outcome) for each in promotions if each.outcome is not None
    ]
    return tuple(sorted([*of_rounds, *of_people], key=lambda each: each.time))


def _round_decision(each: Placed) -> DecisionView:
    result, decision = each.result, each.result.decision
    best, promotion = result.best, result.promotion
    overridden = [steer.value for steer in result.steers if steer.kind == "accept-flag"]
    return DecisionView(
        source=f"{each.view.run.id}/{result.round}",
        time=each.time,
        candidate=None if best is None else Standing(name=best.name, sha256=best.sha256),
        label=decision.label,
        code=decision.code,
        reason=decision.reason,
        conditions=tuple(condition.model_dump() for condition in decision.evidence),
        flags=() if result.sweep is None else tuple(f.code for f in result.sweep.flags),
        overridden=tuple(dict.fromkeys(overridden)),
        by="",
        applied=each.applied,
        detail="" if promotion is None else promotion.detail,
    )


def _promotion_decision(view: PromotionView, outcome: PromoteOutcome) -> DecisionView:
    failed = [each.name for each in outcome.conditions if not each.ok]
    return DecisionView(
        source=view.run.id,
        time=view.records[-1].time if view.records else view.created,
        candidate=Standing(name=outcome.candidate.name, sha256=outcome.candidate.sha256),
        label="promote" if outcome.applied else "refused",
        reason=outcome.detail
        if outcome.applied
        else f"not met: {', '.join(failed) or 'see above'}",
        conditions=tuple(condition.model_dump() for condition in outcome.conditions),
        flags=outcome.overridden,
        overridden=outcome.overridden,
        by=view.by or "somebody",
        applied=outcome.applied,
        detail=outcome.detail,
    )


def direction_rows(
    placed: Sequence[Placed], points: Sequence[CandidatePoint]
) -> tuple[DirectionRow, ...]:
    """Directions that were taken, by how often they were tried."""
    titles = {each.result.direction.id: each.result.direction.title for each in placed}
    rows = [_direction_row(name, title, placed, points) for name, title in titles.items()]
    return tuple(sorted(rows, key=lambda row: (-row.tried, row.direction)))


def _direction_row(
    name: str, title: str, placed: Sequence[Placed], points: Sequence[CandidatePoint]
) -> DirectionRow:
    rounds = [each for each in placed if each.result.direction.id == name]
    tried = [point for point in points if point.direction == name]
    count = [point.outcome for point in tried].count
    best = min(_timed(tried), key=lambda point: point.ratio or 0.0, default=None)
    return DirectionRow(
        direction=name,
        title=title,
        rounds=len(rounds),
        tried=len(tried),
        faster=count("faster"),
        undecided=count("undecided"),
        slower=count("slower"),
        wrong=count("wrong"),
        not_judged=count("not-judged"),
        refused=sum(len(each.result.refused) for each in rounds),
        promoted=sum(point.promoted for point in tried),
        best_ratio=None if best is None else best.ratio,
        best_ci=None if best is None else best.ci,
    )


def _timed(points: Iterable[CandidatePoint]) -> Iterator[CandidatePoint]:
    return (point for point in points if point.ratio is not None)
