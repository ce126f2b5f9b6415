"""Whether a candidate replaces the incumbent: a pure function of recorded results."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from kopt_harness.schema import Comparison, GateResult, SweepResult, Validation, Verdict, Workload

from ..config import PromotionRules
from ..dispatch import learn_rule
from ..result import Condition, Decision
from ..shown import counted
from .conditions import interval_text, promotion_conditions, validation_conditions

__all__ = ["best_passed", "decide", "without_answer"]

_OF_TIME = frozenset({"speed", "regressions", "median", "p95", "worst-regime"})
"""Conditions that a rule over sizes may meet where the candidate alone does not."""
_CANDIDATES_FAULT = frozenset({Verdict.REJECT, Verdict.CRASH, Verdict.TIMEOUT, Verdict.FAIL})


def best_passed(gates: Sequence[GateResult]) -> int | None:
    """Index of the passed candidate whose ratio is surely lowest; None if none passed.

    The upper end of the interval counts: a wide one with a low middle is luck. The first of
    equals wins.
    """
    passed = [index for index, gate in enumerate(gates) if gate.passed]
    return min(passed, key=lambda index: _at_most(gates[index].comparison), default=None)


def _at_most(comparison: Comparison | None) -> float:
    if comparison is None or comparison.ci is None:
        return math.inf
    return comparison.ci[1]


def decide(
    gates: Sequence[GateResult],
    sweep: SweepResult | None,
    *,
    workloads: Sequence[Workload],
    public_seed: int | None,
    rules: PromotionRules | None = None,
    validation: Validation | None = None,
    overridden: Collection[str] = (),
    axes: Sequence[str] = (),
) -> Decision:
    """The one decision that closes a round.

    Args:
        gates: Of all candidates of the round.
        sweep: Of the best that passed; None if none did.
        workloads: Every workload of the definition.
        public_seed: The fixed seed of the inputs, if there was one.
        rules: The policy; None: its defaults.
        validation: Of the candidate that was swept; None where it was not run, because
            another condition does not hold.
        overridden: Flag codes that a person has accepted.
        axes: By which a dispatcher could choose; none: a promotion is for all sizes or not at all.
    """
    if sweep is None:
        return _without_sweep(gates)
    of_sweep = promotion_conditions(
        sweep, workloads=workloads, public_seed=public_seed, rules=rules, overridden=overridden
    )
    of_validation = validation_conditions(sweep, validation, rules=rules, overridden=overridden)
    evidence = (*of_sweep, *of_validation)
    # A validation that was not run for another reason is not a reason beside it.
    failed = [each for each in of_sweep if not each.ok] or [c for c in evidence if not c.ok]
    if not failed:
        assert sweep.comparison is not None, "a comparison is one of the conditions"
        reason = _takes(sweep, sweep.comparison)
        return Decision(label="promote", code="faster", reason=reason, evidence=evidence)
    dispatch = _for_some_sizes(sweep, evidence, failed, axes)
    return dispatch or _refused(sweep, validation, evidence, failed)


def _for_some_sizes(
    sweep: SweepResult,
    evidence: tuple[Condition, ...],
    failed: Sequence[Condition],
    axes: Sequence[str],
) -> Decision | None:
    """``promote-dispatch`` for what is right everywhere and worth a rule over one axis."""
    comparison = sweep.comparison
    if comparison is None or not {condition.name for condition in failed} <= _OF_TIME:
        return None
    rule = learn_rule(comparison.workloads, axes)
    if rule is None or rule.gain < comparison.margin or rule.sure_gain <= 0:
        return None
    name, count = sweep.evaluation.solution.name, len(comparison.workloads)
    where = f"{rule.axis} {rule.low} to {rule.high}"
    reason = f"{name} would win {rule.gain:.1%} of all time where it serves {where} alone"
    reason += (
        f" ({rule.served} of {counted(count, 'workload')}); not everywhere: {failed[0].name} is "
    )
    reason += failed[0].measured
    return Decision(label="promote-dispatch", code="dispatch", reason=reason, evidence=evidence)


def _refused(
    sweep: SweepResult,
    validation: Validation | None,
    evidence: tuple[Condition, ...],
    failed: Sequence[Condition],
) -> Decision:
    """``reject`` for what is wrong or slower; ``archive`` for what a person may still want.

    What is faster on average and slower somewhere is kept: it may serve behind a dispatch.
    """
    name, verdict = sweep.evaluation.solution.name, sweep.evaluation.verdict
    if verdict in _CANDIDATES_FAULT:
        reason = f"{name} failed the full sweep: {_why(sweep)}"
        return Decision(label="reject", code=f"sweep-{verdict}", reason=reason, evidence=evidence)
    if sweep.comparison is not None and sweep.comparison.decision == "slower":
        reason = _takes(sweep, sweep.comparison)
        return Decision(label="reject", code="slower", reason=reason, evidence=evidence)
    again = None if validation is None or validation.gate is None else validation.gate
    if again is not None and again.evaluation.verdict in _CANDIDATES_FAULT:
        verdict = again.evaluation.verdict
        reason = f"{name} failed in a second process: {again.reason.detail}"
        return Decision(
            label="reject", code=f"validation-{verdict}", reason=reason, evidence=evidence
        )
    first, *others = failed
    reason = f"{name} is kept, not promoted: {first.name} is {first.measured}, not {first.required}"
    if others:
        reason += f"; nor do these hold: {', '.join(condition.name for condition in others)}"
    return Decision(label="archive", code=first.name, reason=reason, evidence=evidence)


def _takes(sweep: SweepResult, comparison: Comparison) -> str:
    name = sweep.evaluation.solution.name
    count = len(sweep.evaluation.workloads)
    over = counted(count, "workload")
    return f"{name} takes {interval_text(comparison)} of the incumbent's time over {over}"


def _why(sweep: SweepResult) -> str:
    reasons = sweep.evaluation.reasons or tuple(
        reason for result in sweep.evaluation.workloads for reason in result.reasons
    )
    return reasons[0].detail if reasons else str(sweep.evaluation.verdict)


def without_answer(why: str) -> Decision:
    """The decision on a round whose agent did not answer as it should.

    Args:
        why: What the agent did instead.
    """
    reason = f"the agent gave no usable answer ({why})"
    return Decision(label="archive", code="no-answer", reason=reason)


def _without_sweep(gates: Sequence[GateResult]) -> Decision:
    if not gates:
        return Decision(
            label="archive", code="no-candidates", reason="no agent had anything left to propose"
        )
    evidence = tuple(
        Condition(
            name=f"gate of {gate.evaluation.solution.name}",
            required="passed",
            measured=gate.reason.detail,
            ok=gate.passed,
        )
        for gate in gates
    )
    blameless = [g for g in gates if g.evaluation.verdict in (Verdict.INFRA, Verdict.INVALID)]
    if blameless:
        reason = f"{len(blameless)} of {counted(len(gates), 'candidate')} could not be judged: "
        reason += blameless[0].reason.detail
        return Decision(label="archive", code="not-judged", reason=reason, evidence=evidence)
    reason = f"none of {counted(len(gates), 'candidate')} passed the gate: {gates[0].reason.detail}"
    return Decision(label="reject", code="gate", reason=reason, evidence=evidence)
