"""The representative gate: is a candidate right, and not slower, on a few workloads."""

from __future__ import annotations

from collections.abc import Sequence

from kopt_harness.compare import BlockProgress, Pair, compare_pair
from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import Progress, build, cannot_build, evaluate
from kopt_harness.ledger import Ledger
from kopt_harness.schema import (
    Comparison,
    Evaluation,
    GateResult,
    Reason,
    Solution,
    Verdict,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timings import with_pair

__all__ = ["gate"]


def gate(
    setting: Setting,
    candidate: Solution,
    incumbent: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    session: Session | None = None,
    progress: Progress | None = None,
    block_progress: BlockProgress | None = None,
) -> GateResult:
    """Checks the candidate; if it is right, compares it with the incumbent, paired.

    Args:
        setting: catalog, target and options.
        candidate: what wants to be swept.
        incumbent: what it must beat.
        workloads: representatives of each regime.
        ledger: completed units.
        session: a warm one whose arena fits the workloads; one is opened by default.
        progress: called after each checked workload.
        block_progress: called after each workload of a look.
    """
    try:
        build(setting, candidate)
    except UnavailableError as error:
        # One candidate of a round that this machine cannot build must not end the round.
        evaluation = cannot_build(setting, candidate, error)
        code = f"verdict-{evaluation.verdict.value}"
        return _result(evaluation, None, False, code, error.message)
    definition = setting.catalog.resolve(candidate.definition)
    own = session is None
    session = session or Session(setting, definition, workloads)
    try:
        evaluation = evaluate(
            setting, candidate, workloads, ledger, session=session, progress=progress
        )
        if evaluation.verdict != Verdict.PASS:
            code = f"verdict-{evaluation.verdict.value}"
            detail = evaluation.reasons[0].detail if evaluation.reasons else "not correct"
            return _result(evaluation, None, False, code, detail)
        pair = Pair.of(setting, session, ledger, incumbent, candidate)
        pair.batched = True
        comparison = compare_pair(pair, workloads, progress=block_progress)
        evaluation = with_pair(evaluation, pair)
    finally:
        if own:
            session.close()
    if evaluation.verdict != Verdict.PASS:
        code = f"verdict-{evaluation.verdict.value}"
        return _result(evaluation, comparison, False, code, evaluation.reasons[0].detail)
    if pair.failure is not None:
        return _result(evaluation, comparison, False, "incumbent-failed", comparison.reason)
    ratio = "none" if comparison.ratio is None else f"{comparison.ratio:.3f}"
    detail = f"{comparison.decision}, ratio {ratio}"
    passed = comparison.decision != "slower"
    return _result(evaluation, comparison, passed, comparison.decision, detail)


def _result(
    evaluation: Evaluation, comparison: Comparison | None, passed: bool, code: str, detail: str
) -> GateResult:
    return GateResult(
        evaluation=evaluation,
        comparison=comparison,
        passed=passed,
        reason=Reason(code=code, detail=detail),
    )
