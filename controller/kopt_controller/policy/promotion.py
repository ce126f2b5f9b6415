"""Whether a candidate replaces the incumbent: a pure function of recorded results."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from kopt_harness.schema import Comparison, GateResult, SweepResult, Verdict, Workload

from ..result import Condition, Decision

__all__ = ["best_passed", "decide", "promotion_conditions"]

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
) -> Decision:
    """The one decision that closes a round.

    Args:
        gates: Of all candidates of the round.
        sweep: Of the best that passed; None if none did.
        workloads: Every workload of the definition.
        public_seed: The fixed seed of the inputs, if there was one.
    """
    if sweep is None:
        return _without_sweep(gates)
    conditions = promotion_conditions(sweep, workloads=workloads, public_seed=public_seed)
    failed = [condition for condition in conditions if not condition.ok]
    name = sweep.evaluation.solution.name
    comparison = sweep.comparison
    if not failed:
        assert comparison is not None, "a comparison is one of the conditions"
        reason = f"{name} takes {_interval(comparison)} of the incumbent's time over all workloads"
        return Decision(label="promote", code="faster", reason=reason, evidence=conditions)
    verdict = sweep.evaluation.verdict
    if verdict in _CANDIDATES_FAULT:
        reason = f"{name} failed the full sweep: {_why(sweep)}"
        return Decision(label="reject", code=f"sweep-{verdict}", reason=reason, evidence=conditions)
    if comparison is not None and comparison.decision == "slower":
        reason = f"{name} takes {_interval(comparison)} of the incumbent's time over all workloads"
        return Decision(label="reject", code="slower", reason=reason, evidence=conditions)
    first, *others = failed
    reason = f"{name} is kept, not promoted: {first.name} is {first.measured}, not {first.required}"
    if others:
        reason += f"; nor do these hold: {', '.join(condition.name for condition in others)}"
    return Decision(label="archive", code=first.name, reason=reason, evidence=conditions)


def promotion_conditions(
    sweep: SweepResult,
    *,
    workloads: Sequence[Workload],
    public_seed: int | None,
    overridden: Collection[str] = (),
) -> tuple[Condition, ...]:
    """Everything that a promotion requires, each with what was measured.

    Args:
        sweep: Of the candidate against the incumbent.
        workloads: Every workload of the definition.
        public_seed: The fixed seed of the inputs, if there was one.
        overridden: Flag codes that a person has accepted.
    """
    evaluation = sweep.evaluation
    return (
        Condition(
            name="verdict",
            required="pass",
            measured=str(evaluation.verdict),
            ok=evaluation.verdict is Verdict.PASS,
        ),
        _coverage(sweep, workloads),
        _tier(sweep, "contest", may_be_absent=True),
        _tier(sweep, "strict", may_be_absent=False),
        _faster(sweep.comparison),
        _flags(sweep, overridden),
        Condition(
            name="inputs",
            required="drawn from secret seeds",
            measured="secret seeds" if public_seed is None else f"public seed {public_seed}",
            ok=public_seed is None,
        ),
    )


def _coverage(sweep: SweepResult, workloads: Sequence[Workload]) -> Condition:
    wanted = {workload.uuid for workload in workloads}
    checked = wanted & {result.uuid for result in sweep.evaluation.workloads}
    compared = () if sweep.comparison is None else sweep.comparison.workloads
    timed = wanted & {workload.uuid for workload in compared if workload.ratio is not None}
    return Condition(
        name="coverage",
        required=f"a complete sweep of all {len(wanted)} workloads",
        measured=f"{len(checked)} checked, {len(timed)} timed"
        + ("" if sweep.complete else ", incomplete"),
        ok=sweep.complete and checked == wanted,
    )


def _tier(sweep: SweepResult, tier: str, *, may_be_absent: bool) -> Condition:
    found = [
        result.tiers[tier].verdict if tier in result.tiers else "missing"
        for result in sweep.evaluation.workloads
    ]
    passed, absent = found.count("pass"), found.count("n/a")
    allowed = passed + (absent if may_be_absent else 0)
    return Condition(
        name=f"{tier}-tier",
        required="pass" + (" wherever it applies" if may_be_absent else " on every workload"),
        measured=f"{passed} of {len(found)} pass" + (f", {absent} n/a" if absent else ""),
        ok=bool(found) and allowed == len(found),
    )


def _faster(comparison: Comparison | None) -> Condition:
    required = "faster than the incumbent beyond the margin"
    if comparison is None or comparison.ratio is None or comparison.ci is None:
        return Condition(name="speed", required=required, measured="not compared", ok=False)
    limit = 1 - comparison.margin
    slower = _slower_workloads(comparison)
    measured = f"{comparison.decision}, ratio {_interval(comparison)}"
    measured += f" at {comparison.confidence:.0%}"
    if slower:
        measured += f", slower on {slower} of {len(comparison.workloads)} workloads"
    return Condition(
        name="speed",
        required=f"{required}: decision faster, ratio below {limit:.3f}",
        measured=measured,
        ok=comparison.decision == "faster" and comparison.ratio < limit and comparison.ci[1] < 1,
    )


def _slower_workloads(comparison: Comparison) -> int:
    """Workloads whose own interval lies above the margin; not corrected for their number."""
    limit = 1 + comparison.margin
    return sum(w.ci is not None and w.ci[0] > limit for w in comparison.workloads)


def _flags(sweep: SweepResult, overridden: Collection[str]) -> Condition:
    codes = {flag.code for flag in sweep.evaluation.flags}
    codes |= {flag.code for result in sweep.evaluation.workloads for flag in result.flags}
    barring = sorted(codes - set(overridden))
    accepted = sorted(codes & set(overridden))
    measured = ", ".join(barring) or "none"
    if accepted:
        measured += f" (overridden: {', '.join(accepted)})"
    return Condition(
        name="flags", required="none, or overridden", measured=measured, ok=not barring
    )


def _interval(comparison: Comparison) -> str:
    if comparison.ratio is None or comparison.ci is None:
        return "an unknown part"
    low, high = comparison.ci
    return f"{comparison.ratio:.3f} [{low:.3f}, {high:.3f}]"


def _why(sweep: SweepResult) -> str:
    reasons = sweep.evaluation.reasons or tuple(
        reason for result in sweep.evaluation.workloads for reason in result.reasons
    )
    return reasons[0].detail if reasons else str(sweep.evaluation.verdict)


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
        reason = f"{len(blameless)} of {len(gates)} candidates could not be judged: "
        reason += blameless[0].reason.detail
        return Decision(label="archive", code="not-judged", reason=reason, evidence=evidence)
    reason = f"none of {len(gates)} candidates passed the gate: {gates[0].reason.detail}"
    return Decision(label="reject", code="gate", reason=reason, evidence=evidence)
