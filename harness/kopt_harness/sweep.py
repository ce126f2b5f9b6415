"""Every workload: full correctness, and the candidate against the incumbent, paired.

With one worker a workload is checked and timed in one visit, so that its inputs are drawn
once. With more, worker pairs check workloads side by side first and timing follows alone,
because timing shares its device with nothing else that is timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kopt_harness.baselines import compare_baselines, find_baselines
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.evaluate import MAX_DEATHS, Progress, conclude, evaluate, in_force
from kopt_harness.fleet import Fleet, Job
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.schema import (
    Comparison,
    Evaluation,
    Solution,
    SweepResult,
    Verdict,
    Workload,
    WorkloadResult,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timings import with_pair

__all__ = ["for_sweep", "sweep"]

MANY_WORKLOADS = 16
"""So many give an interval degrees of freedom enough with two blocks each."""
MANY_BLOCKS_MIN = 2
"""Blocks of each of them before the first look; docs/measurement.md has the error that results."""


def sweep(
    setting: Setting,
    candidate: Solution,
    incumbent: Solution | None,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    session: Session | None = None,
    progress: Progress | None = None,
    distinct_inputs: int = 0,
) -> SweepResult:
    """Checks every workload, and with an incumbent compares both on all of them.

    Args:
        setting: catalog, target and options.
        candidate: what is swept.
        incumbent: what it is compared with; None checks, and times baselines only.
        workloads: all of the definition, for a sweep that can promote.
        ledger: completed units.
        session: a warm one whose arena fits; one is opened by default.
        progress: called after each checked workload.
        distinct_inputs: input sets over all workloads at least, whatever ``trials`` says.
    """
    setting = for_sweep(setting, workloads, distinct_inputs)
    definition = setting.catalog.resolve(candidate.definition)
    baselines = find_baselines(setting, definition)
    own = session is None
    session = session or Session(setting, definition, workloads)
    pair: Pair | None = None
    comparison: Comparison | None = None
    try:
        # A promotion rests on inputs that no call before it has seen.
        session.renew()
        if setting.options.workers > 1:
            # What they find is in the ledger, and said already.
            _check_ahead(setting, candidate, workloads, ledger, progress)
            progress = None
        if incumbent is not None:
            pair = Pair.of(setting, session, ledger, incumbent, candidate)
            evaluation = _visit(pair, workloads, progress)
        else:
            evaluation = evaluate(
                setting,
                candidate,
                workloads,
                ledger,
                session=session,
                progress=progress,
                stress_sets=setting.options.sweep_stress_sets,
            )
        complete = len(evaluation.workloads) == len(workloads)
        if evaluation.verdict != Verdict.PASS or (incumbent is None and not baselines):
            return SweepResult(evaluation=evaluation, comparison=None, complete=complete)
        if incumbent is not None:
            pair = pair or Pair.of(setting, session, ledger, incumbent, candidate)
            comparison = compare_pair(pair, workloads, thorough=True)
            evaluation = with_pair(evaluation, pair)
            complete = complete and all(row.ratio is not None for row in comparison.workloads)
        if not baselines or evaluation.verdict != Verdict.PASS:
            return SweepResult(evaluation=evaluation, comparison=comparison, complete=complete)
        if incumbent is not None and incumbent.sha256 != candidate.sha256:
            session.discard(incumbent.sha256)  # its memory is the baseline's
        measured = compare_baselines(
            setting,
            session,
            ledger,
            evaluation=evaluation,
            solution=candidate,
            baselines=baselines,
            workloads=workloads,
        )
    finally:
        if own:
            session.close()
    return SweepResult(
        evaluation=measured.evaluation,
        comparison=comparison,
        complete=complete,
        baselines=measured.comparisons,
        best_baseline=measured.best,
    )


def for_sweep(setting: Setting, workloads: Sequence[Workload], distinct_inputs: int = 0) -> Setting:
    """The setting with enough input sets a workload, and no more blocks than many need."""
    options = setting.options
    least = -(-distinct_inputs // max(1, len(workloads)))
    chosen = {"trials": max(options.trials, least)}
    if (
        options.blocks_min is None
        and setting.target.kind == "cpu"
        and len(workloads) >= MANY_WORKLOADS
        and not setting.rounds  # whose first look is at them all
    ):
        chosen["blocks_min"] = MANY_BLOCKS_MIN
    return dataclasses.replace(setting, options=options.model_copy(update=chosen))


def _visit(pair: Pair, workloads: Sequence[Workload], progress: Progress | None) -> Evaluation:
    """Checks and times each workload while its inputs are there; stops timing at a fault."""
    setting, candidate = pair.setting, pair.b
    results: list[WorkloadResult] = []
    with device_lease(setting.device_id):
        for workload in workloads:
            one = evaluate(
                setting,
                candidate,
                [workload],
                pair.ledger,
                session=pair.session,
                stress_sets=setting.options.sweep_stress_sets,
            )
            if not one.workloads:
                return one
            results += one.workloads
            if progress is not None:
                progress(workload, one.workloads[0])
            verdicts = [result.verdict for result in results]
            if verdicts.count(Verdict.CRASH) + verdicts.count(Verdict.TIMEOUT) >= MAX_DEATHS:
                break
            if set(verdicts) == {Verdict.PASS} and pair.failure is None:
                pair.measure(workload, 1 if setting.rounds else setting.blocks_min)
    isolation = in_force(pair.ledger, candidate, pair.session)
    evaluation = conclude(setting, candidate, results, isolation=isolation)
    return with_pair(evaluation, pair)


def _check_ahead(
    setting: Setting,
    candidate: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    progress: Progress | None,
) -> None:
    """Checks all workloads by several worker pairs."""

    def checked(_: Solution, workload: Workload, result: WorkloadResult) -> None:
        if progress is not None:
            progress(workload, result)

    with Fleet([Job(setting, candidate, workloads, ledger)], checked=checked) as fleet:
        fleet.wait()
