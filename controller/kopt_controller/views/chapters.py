"""Puts a chapter together: one definition on one target, from journals and committed evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kopt_harness.archive import Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.files import read_json
from kopt_harness.index import Index
from kopt_harness.journal import JournalRecord, read_selected
from kopt_harness.root import Root

from ..history import PromotionView, RunView, list_promotions, view_run
from ..kinds import CAMPAIGN
from ..steering import STEER_FILE, read_steers
from .described import asked, environments, known_of
from .model import BlockSamples, Chapter, Cost, DecisionView, Headline
from .overview import SubjectKey, evaluation_table, retained_folder
from .reproduce import commands
from .sources import Pair, is_summary, retained_pair, retained_samples, round_pair, round_samples
from .spent import cost_rows
from .tables import Work, efficiency_rows, regime_views, workload_rows
from .trajectory import (
    Placed,
    candidate_points,
    decision_views,
    direction_rows,
    place_rounds,
    round_points,
    steer_points,
)

__all__ = ["Sources", "run_chapter", "subject_chapter"]

MOST_SAMPLED = 8
"""Workloads whose samples a chapter carries."""

SECOND = len("2026-11-30T07:15:18")
"""Digits by which moments are compared: some sources have fractions, others none."""


@dataclass(frozen=True)
class Sources:
    """Where everything is read."""

    root: Root
    catalog: Catalog
    index: Index
    """Of the archive of the root, refreshed."""


class _Evidence(NamedTuple):
    """What there is of one chapter."""

    views: tuple[RunView, ...]
    promotions: tuple[PromotionView, ...]
    retained: Path | None = None
    problems: tuple[str, ...] = ()
    """Runs that cannot be read."""


class _Chosen(NamedTuple):
    """The pair of the headline, and its samples by workload."""

    pair: Pair
    samples: Mapping[str, BlockSamples]
    decision: DecisionView | None
    """Where no round of the archive has it."""


def run_chapter(sources: Sources, run: Run) -> Chapter:
    """The chapter of one campaign.

    Raises:
        InvalidInputError: If it is no campaign, or its journal is damaged.
    """
    view = view_run(run, list_promotions(sources.index), _summaries)
    known = [each for each in sources.index.runs(CAMPAIGN) if each.id == run.id]
    problems = tuple(each.problem for each in known if each.problem)
    key = SubjectKey(view.manifest.definition, view.manifest.target)
    return _chapter(sources, key, _Evidence((view,), view.promotions, problems=problems))


def subject_chapter(sources: Sources, key: SubjectKey) -> Chapter:
    """The chapter of all campaigns of a definition on a target, and of what is committed of it.

    A run that cannot be read is named among the problems of the chapter.
    """
    promotions = list_promotions(sources.index)
    views, problems = [], []
    for each in sources.index.runs(CAMPAIGN, definition=key.definition, target=key.target):
        if each.problem:
            problems.append(f"{each.id}: {each.problem}")
        try:
            views.append(view_run(Run(each.folder), promotions, _summaries))
        except KoptError as error:
            if not each.problem:
                problems.append(f"{each.id}: {error.message}")
    own = [each for each in promotions if (each.definition, each.target) == key]
    folder = retained_folder(sources.root, key)
    evidence = _Evidence(tuple(views), tuple(own), folder, tuple(problems))
    return _chapter(sources, key, evidence)


def _summaries(path: Path) -> tuple[JournalRecord, ...]:
    """The index has read every record, so that damage in the others is known."""
    return read_selected(path, is_summary)


def _chapter(sources: Sources, key: SubjectKey, evidence: _Evidence) -> Chapter:
    views, retained = evidence.views, evidence.retained
    known, notes = known_of(sources.catalog, key)
    placed = place_rounds(views)
    chosen, found = _choose(placed, retained)
    rows = () if chosen is None else workload_rows(chosen.pair, known.work)
    points = candidate_points(placed)
    decisions = decision_views(placed, evidence.promotions)
    spent, unread = _spent(views)
    said = {view.run.id: read_steers(view.run.folder / STEER_FILE) for view in views}
    if chosen is not None and chosen.decision is not None:
        decisions = (chosen.decision, *decisions)
    orders: dict[str, dict[int, int]] = {view.run.id: {} for view in views}
    for each in placed:
        orders[each.view.run.id][each.result.round] = each.order
    return Chapter(
        subject=known.subject,
        hardware=known.hardware,
        runs=tuple(asked(view) for view in views),
        environments=environments(views, None if chosen is None else chosen.pair),
        headline=None if chosen is None else _headline(chosen.pair),
        efficiency=() if chosen is None else efficiency_rows(chosen.pair, rows),
        workloads=rows,
        regimes=regime_views(placed[-1].result.state) if placed else (),
        rounds=round_points(placed),
        candidates=points,
        steers=steer_points(placed, said),
        samples=() if chosen is None else _sampled(chosen, known.work),
        decisions=decisions,
        directions=direction_rows(placed, points),
        costs=spent,
        reproduce=commands(
            key, views, None if chosen is None else chosen.pair, retained, sources.root
        ),
        evaluations=evaluation_table(sources.index, orders),
        problems=(*evidence.problems, *notes, *found, *unread),
    )


def _spent(views: Sequence[RunView]) -> tuple[tuple[Cost, ...], list[str]]:
    """A damaged ledger hides no measurement."""
    try:
        return cost_rows(views), []
    except KoptError as error:
        return (), [error.message]


def _choose(placed: Sequence[Placed], retained: Path | None) -> tuple[_Chosen | None, list[str]]:
    """The newest pair that was promoted, else that may be, else that was swept."""
    swept = [p for p in placed if p.result.sweep is not None and p.result.sweep.comparison]
    moving = [each for each in swept if each.applied]
    waiting = [each for each in swept if each.result.decision.label == "promote"]
    problems: list[str] = []
    kept: _Chosen | None = None
    if retained is not None:
        try:
            old = retained_pair(retained)
            kept = _Chosen(old, retained_samples(retained), _retained_decision(old, retained))
        except KoptError as error:
            problems.append(error.message)
    if not swept:
        return kept, problems
    each = (moving or waiting or swept)[-1]
    pair = round_pair(each.view, each.result)
    assert pair is not None, "only rounds with a comparison were taken"
    if kept is not None and kept.pair.candidate.sha256 == pair.candidate.sha256:
        # The round says more of each workload, its evidence more of the whole.
        pair = pair._replace(limits=kept.pair.limits, provisional=kept.pair.provisional)
    elif kept is not None and (not moving or kept.pair.date[:SECOND] >= pair.date[:SECOND]):
        return kept, problems
    pair = pair._replace(applied=each.applied)
    return _Chosen(pair, round_samples(each.view, each.result), None), problems


def _retained_decision(pair: Pair, folder: Path) -> DecisionView:
    document = read_json(folder / "decision.json", "retained evidence")
    return DecisionView(
        source=pair.source,
        time=document["date"],
        candidate=pair.candidate,
        label=pair.label,
        code=document["decision"].get("code", ""),
        reason=pair.reason,
        conditions=tuple(document["decision"]["evidence"]),
        flags=tuple(document.get("overridden_flags", ())),
        overridden=tuple(document.get("overridden_flags", ())),
        by="",
        applied=True,
        detail=f"committed evidence of the run {document['run']}",
    )


def _headline(pair: Pair) -> Headline:
    return Headline(
        candidate=pair.candidate,
        incumbent=pair.incumbent,
        ratio=pair.ratio,
        ci=pair.ci,
        confidence=pair.confidence,
        candidate_mean_us=pair.candidate_mean_us,
        incumbent_mean_us=pair.incumbent_mean_us,
        workloads=len(pair.rows),
        decision=pair.label,
        reason=pair.reason,
        applied=pair.applied,
        committed=pair.committed,
        date=pair.date,
        epoch=pair.epoch,
        source=pair.source,
        provisional=pair.provisional,
        limits=pair.limits,
    )


def _sampled(chosen: _Chosen, work: Mapping[str, Work]) -> tuple[BlockSamples, ...]:
    """One workload of each regime: the middle one in the order of the definition."""
    by_regime: dict[str, list[str]] = {}
    for row in chosen.pair.rows:
        if row.uuid in chosen.samples:
            regime = work[row.uuid].regime if row.uuid in work else str(sorted(row.axes.items()))
            by_regime.setdefault(regime, []).append(row.uuid)
    middle = [uuids[len(uuids) // 2] for uuids in by_regime.values()][:MOST_SAMPLED]
    axes = {row.uuid: row.axes for row in chosen.pair.rows}
    return tuple(chosen.samples[uuid].model_copy(update={"axes": axes[uuid]}) for uuid in middle)
