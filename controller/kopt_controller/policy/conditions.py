"""The conditions of a promotion, each with what is required and what was measured.

Pure functions of recorded results and of ``PromotionRules``: those of the sweep first, and
those of the validation, which is run only where all others hold. What an older version did not
record is not measured again; the condition says so and does not hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kopt_harness.schema import (
    Artefact,
    BuildResult,
    Comparison,
    SweepResult,
    Validation,
    Verdict,
    Workload,
    WorkloadComparison,
)

from ..config import PromotionRules
from ..result import Condition
from ..shown import counted, ratio_text

__all__ = ["awaits_validation", "interval_text", "promotion_conditions", "validation_conditions"]

NOT_RECORDED = "not recorded"
NOT_RUN = "not run, since another condition does not hold"


def promotion_conditions(
    sweep: SweepResult,
    *,
    workloads: Sequence[Workload],
    public_seed: int | None,
    rules: PromotionRules | None = None,
    overridden: Collection[str] = (),
) -> tuple[Condition, ...]:
    """What a promotion requires of the sweep.

    Args:
        sweep: Of the candidate against the incumbent.
        workloads: Every workload of the definition.
        public_seed: The fixed seed of the inputs, if there was one.
        rules: The policy; None: its defaults.
        overridden: Flag codes that a person has accepted.
    """
    rules = rules or PromotionRules()
    evaluation, comparison = sweep.evaluation, sweep.comparison
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
        _faster(comparison, rules),
        _regressions(comparison, rules),
        *_secondary(comparison, rules),
        _trials(sweep, rules),
        _flags(sweep, overridden),
        Condition(
            name="inputs",
            required="drawn from secret seeds",
            measured="secret seeds" if public_seed is None else f"public seed {public_seed}",
            ok=public_seed is None,
        ),
    )


def validation_conditions(
    sweep: SweepResult,
    validation: Validation | None,
    *,
    rules: PromotionRules | None = None,
    overridden: Collection[str] = (),
) -> tuple[Condition, ...]:
    """What a promotion requires of the validation; nothing where the rules ask for none.

    Args:
        sweep: What is validated.
        validation: None where it was not run.
        rules: The policy; None: its defaults.
        overridden: Flag codes that a person has accepted.
    """
    rules = rules or PromotionRules()
    found = []
    if rules.clean_rebuild:
        found.append(_rebuild(sweep.built, validation))
    if rules.validate_in_second_process:
        found.append(_second_process(validation, overridden))
    if rules.external_confirmation:
        found.append(_confirmation(validation, overridden))
    return tuple(found)


def awaits_validation(conditions: Sequence[Condition], rules: PromotionRules) -> bool:
    """Whether all else holds, and something is still to be done.

    Args:
        conditions: Of the sweep.
        rules: The policy.
    """
    return rules.need_validation and all(condition.ok for condition in conditions)


def interval_text(comparison: Comparison) -> str:
    """Ratio and interval for a person."""
    if comparison.ratio is None or comparison.ci is None:
        return "an unknown part"
    return ratio_text(comparison.ratio, comparison.ci)


def _coverage(sweep: SweepResult, workloads: Sequence[Workload]) -> Condition:
    wanted = {workload.uuid for workload in workloads}
    checked = wanted & {result.uuid for result in sweep.evaluation.workloads}
    compared = () if sweep.comparison is None else sweep.comparison.workloads
    timed = wanted & {workload.uuid for workload in compared if workload.ratio is not None}
    return Condition(
        name="coverage",
        required=f"a complete sweep of all {counted(len(wanted), 'workload')}",
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


def _faster(comparison: Comparison | None, rules: PromotionRules) -> Condition:
    required = f"{rules.primary} below the incumbent's beyond the margin"
    if comparison is None or comparison.ratio is None or comparison.ci is None:
        return Condition(name="speed", required=required, measured="not compared", ok=False)
    limit = 1 - comparison.margin
    measured = f"{comparison.decision}, ratio {interval_text(comparison)}"
    measured += f" at {comparison.confidence:.0%}"
    return Condition(
        name="speed",
        required=f"{required}: decision faster, ratio below {limit:.3f}",
        measured=measured,
        ok=comparison.decision == "faster" and comparison.ratio < limit and comparison.ci[1] < 1,
    )


def _regressions(comparison: Comparison | None, rules: PromotionRules) -> Condition:
    """A slow-down that is not shown beyond the level bars nothing: it may be noise."""
    rows = () if comparison is None else tuple(r for r in comparison.workloads if r.ratio)
    margin = "the margin" if comparison is None else f"{comparison.margin:.1%}"
    is_off = rules.regressions == "off"
    required = f"no workload slower by more than {margin}, Holm at {rules.regression_level:g}"
    if is_off:
        required = "nothing: regressions are off"
    tested = [(row, row.p_slower) for row in rows if row.p_slower is not None]
    if not rows or len(tested) < len(rows):
        measured = NOT_RECORDED if rows else "not compared"
        return Condition(name="regressions", required=required, measured=measured, ok=is_off)
    slower = sum(p < rules.regression_level for _, p in tested)
    row, p = min(tested, key=lambda each: (each[1], -(each[0].ratio or 0.0)))
    measured = f"{slower} of {len(tested)} slower; worst {_workload(row)}, adjusted p {p:.2g}"
    return Condition(
        name="regressions", required=required, measured=measured, ok=is_off or not slower
    )


def _workload(row: WorkloadComparison) -> str:
    axes = " ".join(f"{name}={extent}" for name, extent in row.axes.items())
    return f"{row.uuid} ({axes}): ratio {row.ratio:.3f}"


def _secondary(comparison: Comparison | None, rules: PromotionRules) -> tuple[Condition, ...]:
    found = None if comparison is None else comparison.secondary
    is_compared = comparison is not None and comparison.ratio is not None
    missing = NOT_RECORDED if is_compared else "not compared"
    margin = 0.0 if comparison is None else comparison.margin
    count = 0 if comparison is None else len(comparison.workloads)

    def at_most(limit: float | None, value: float | None, where: str = "") -> dict[str, Any]:
        highest = 1 + margin if limit is None else limit
        return {
            "required": f"at most {highest:.3f} of the incumbent's time",
            "measured": missing if value is None else f"{value:.3f}{where}",
            "ok": value is not None and value <= highest,
        }

    over = f" over {counted(count, 'workload')}"
    median, p95, worst, regime = None, None, None, ""
    if found is not None:
        median, p95, worst = found.median, found.p95, found.worst_regime_ratio
        regime = f" in {found.worst_regime}, worst of {counted(len(found.regimes), 'regime')}"
    return (
        Condition(name="median", **at_most(rules.median_ratio_max, median, over)),
        Condition(name="p95", **at_most(rules.p95_ratio_max, p95, over)),
        Condition(name="worst-regime", **at_most(rules.worst_regime_ratio_max, worst, regime)),
    )


def _trials(sweep: SweepResult, rules: PromotionRules) -> Condition:
    results = sweep.evaluation.workloads
    trials = sum(result.trials for result in results if result.verdict is Verdict.PASS)
    return Condition(
        name="trials",
        required=f"at least {rules.min_distinct_inputs} distinct input sets",
        measured=f"{trials} over {counted(len(results), 'workload')}",
        ok=trials >= rules.min_distinct_inputs,
    )


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


def _rebuild(measured: BuildResult | None, validation: Validation | None) -> Condition:
    differs, text = True, NOT_RUN
    if measured is None and validation is not None:
        text = f"the build that was measured is {NOT_RECORDED}"
    elif measured is not None and validation is not None:
        difference = _difference(measured, validation.built)
        differs, count = bool(difference), len(validation.built.artefacts)
        text = difference or f"key {measured.key[:12]}, {count} equal artefacts"
    return Condition(
        name="rebuild",
        required="archived bytes build in an empty cache: key and artefacts as measured",
        measured=text,
        ok=not differs,
    )


def _difference(measured: BuildResult, rebuilt: BuildResult) -> str:
    """Between two builds; empty where there is none."""
    if not rebuilt.ok:
        lines = [line for line in rebuilt.log.splitlines() if line.strip()]
        return f"does not build: {lines[-1][:200] if lines else 'no compiler output'}"
    if rebuilt.cached:
        return "taken from a cache"
    if rebuilt.key != measured.key:
        return f"key {rebuilt.key[:12]}, not {measured.key[:12]}: flags or toolchain have changed"
    if rebuilt.artefacts != measured.artefacts:
        return f"{_report(rebuilt.artefacts)}, not {_report(measured.artefacts)}"
    return ""


def _report(artefacts: Sequence[Artefact]) -> str:
    found = [
        f"{a.kind} {a.name or a.arch}: {a.registers} registers, {a.spill_bytes} bytes spilt"
        for a in artefacts
    ]
    return "; ".join(found) or "no artefact"


def _second_process(validation: Validation | None, overridden: Collection[str]) -> Condition:
    holds, text = False, NOT_RUN
    gate = None if validation is None else validation.gate
    if validation is not None and gate is None:
        text = "does not build"
    elif gate is not None:
        evaluation, comparison = gate.evaluation, gate.comparison
        flags = sorted({flag.code for flag in evaluation.flags} - set(overridden))
        is_compared = comparison is not None and comparison.ratio is not None
        holds = evaluation.verdict is Verdict.PASS and gate.passed and is_compared and not flags
        text = f"{evaluation.verdict}, {gate.reason.detail}"
        if comparison is not None and comparison.ratio is not None:
            text = f"{evaluation.verdict}, {comparison.decision}, ratio {interval_text(comparison)}"
            text += f" on {counted(len(comparison.workloads), 'workload')}"
        text += f", flags {', '.join(flags)}" if flags else ""
    return Condition(
        name="validation",
        required="new processes and inputs: pass, not slower, no further flag",
        measured=text,
        ok=holds,
    )


def _confirmation(validation: Validation | None, overridden: Collection[str]) -> Condition:
    found = None if validation is None else validation.confirmation
    holds, text = False, NOT_RUN
    if validation is not None and found is None:
        passed = validation.gate is not None and validation.gate.passed
        text = NOT_RECORDED if passed else NOT_RUN
    elif found is not None:
        flag = found.flag
        holds = flag is None or flag.code in overridden
        text = found.reason if flag is None else f"{flag.code}: {flag.detail}"
        if found.outcome == "agreed":
            far = max(abs(w.claimed_busy_us - w.external_us) for w in found.workloads)
            text = f"{found.profiler} agrees on {counted(len(found.workloads), 'workload')}, "
            text += f"within {far:.2f} us of a call's kernels"
        text += " (overridden)" if flag is not None and holds else ""
    return Condition(
        name="confirmation",
        required="on a GPU: an external profiler agrees within max(10 %, 0.5 us)",
        measured=text,
        ok=holds,
    )
