"""Is an attention right: the contest's rule for it, and kopt's strict rule.

*contest*: FlashInfer-Bench's DsaSparseAttentionEvaluator (main of 2026-04-30) differs from the
default only in that a solution may leave out ``lse``: an output that is not in ``actual`` is
not compared in this tier. A judge never leaves one out, since ``check_outputs`` refuses it
first. A NaN or an infinity anywhere in an output fails, whatever the reference has there; so
this tier only fits inputs in which every row selects a token.

*strict*: row by row against the float64 reference. A row that selects nothing must have an
``lse`` of exactly minus infinity and an output of zeros.
"""

from kopt_harness.check import (
    OutputFinding,
    compare_strict,
    contest_output,
    first_wrong,
    tier_result,
)
from kopt_harness.schema import OutputError, Reason


def compare(tier, definition, inputs, expected, actual):  # noqa: ARG001
    """One tier of correctness of an attention.

    Args:
        tier: ``contest`` or ``strict``.
        definition: the operator.
        inputs: not needed; part of the signature of every ``check.py``.
        expected: the reference's unrounded outputs by name.
        actual: the candidate's outputs by name, in the declared form.

    Returns:
        The tier's result.
    """
    if tier == "strict":
        return compare_strict(definition, expected, actual)
    given = [name for name in definition.outputs if name in actual]
    findings = [_non_finite(name, expected[name], actual[name]) for name in given]
    found = [finding for finding in findings if finding is not None]
    if not found:
        tolerance = definition.kopt.contest
        found = [
            contest_output(name, expected[name].to(actual[name].dtype), actual[name], tolerance)
            for name in given
        ]
    return tier_result(tier, found)


def _non_finite(name, expected, actual):
    """A finding on the first NaN or infinity of an output, or None."""
    bad = ~actual.isfinite()
    if not bad.any():
        return None
    wrong = first_wrong(name, int(bad.reshape(-1).int().argmax()), expected, actual)
    detail = f"{name!r} is {wrong.actual} at {list(wrong.index)}; the contest accepts no such value"
    error = OutputError(
        output=name,
        max_abs=None,
        max_rel=None,
        matched_ratio=1.0 - int(bad.sum()) / bad.numel(),
        ok=False,
        first_wrong=wrong,
        detail=detail,
    )
    return OutputFinding(error, Reason(code="non-finite-output", detail=detail))
