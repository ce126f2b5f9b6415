"""What a judge calls: the form of the outputs, then both tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from ..schema import Definition, OutputError, Reason, TensorShape, TierResult
from .contest import contest_output
from .strict import Magnitudes, strict_output
from .verdict import OutputFinding, tier_result

__all__ = [
    "Comparator",
    "check_outputs",
    "compare_all",
    "compare_contest",
    "compare_strict",
    "null_kernel_reason",
]

Tier = Literal["contest", "strict"]


class Comparator(Protocol):
    """The ``check.py`` of a definition, loaded as a module."""

    def compare(
        self,
        tier: Tier,
        definition: Definition,
        inputs: Mapping[str, Any],
        expected: Mapping[str, Any],
        actual: Mapping[str, Any],
    ) -> TierResult:
        """One tier over all outputs; ``expected`` holds the unrounded reference."""
        ...


def check_outputs(
    definition: Definition,
    axes: Mapping[str, int],
    outputs: Mapping[str, Any],
    *,
    device: str | None = None,
) -> Reason | None:
    """Whether the outputs have the declared form: names, type, shape, dtype, layout, device.

    Nothing is promoted, broadcast or left out: an output that the definition declares
    must be there, contiguous, in exactly its shape and dtype.

    Args:
        definition: the operator.
        axes: extents of the variable axes.
        outputs: by name, as a value-returning solution gave them.
        device: type that the outputs must be on (``cpu``, ``cuda``); None accepts any.

    Returns:
        Why the outputs are refused, or None.
    """
    unknown = sorted(set(outputs) - set(definition.outputs))
    if unknown:
        return Reason(code="unknown-output", detail=f"there is no output {unknown[0]!r}")
    refusals = (
        _refusal(declared, outputs.get(declared.name), device)
        for declared in definition.output_shapes(axes)
    )
    return next((reason for reason in refusals if reason is not None), None)


def _refusal(declared: TensorShape, value: Any, device: str | None) -> Reason | None:
    """The first way in which one output is not of the declared form."""
    name = declared.name
    if value is None:
        return Reason(code="missing-output", detail=f"output {name!r} is missing")
    if not hasattr(value, "is_contiguous"):
        detail = f"output {name!r} is a {type(value).__name__}, not a tensor"
        return Reason(code="not-a-tensor", detail=detail)
    code = None
    if tuple(value.shape) != declared.shape:
        code, detail = "wrong-shape", f"shape {tuple(value.shape)}, expected {declared.shape}"
    elif str(value.dtype) != f"torch.{declared.dtype}":
        code, detail = "wrong-dtype", f"dtype {value.dtype}, expected torch.{declared.dtype}"
    elif device is not None and value.device.type != device:
        code, detail = "wrong-device", f"device {value.device.type}, expected {device}"
    elif not value.is_contiguous():
        code, detail = "wrong-layout", f"strides {tuple(value.stride())}, expected contiguous"
    return Reason(code=code, detail=f"output {name!r} has {detail}") if code else None


def compare_all(
    definition: Definition,
    inputs: Mapping[str, Any],
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    comparator: Comparator | None = None,
    *,
    kind: Literal["contest", "stress"] = "contest",
    magnitudes: Magnitudes | None = None,
) -> dict[Tier, TierResult]:
    """Both tiers of correctness of one call.

    Args:
        definition: the operator.
        inputs: what the call was given, by name.
        expected: the reference's unrounded outputs, by name.
        actual: the candidate's outputs, by name, in the declared form (``check_outputs``).
        comparator: the definition's own rule, where it has one.
        kind: of the input generator; on ``stress`` inputs the contest tier is ``n/a``.
        magnitudes: of the rows of an output, for bounds that know of cancellation.

    Returns:
        The result of each tier.
    """

    def compare(tier: Tier) -> TierResult:
        if comparator is not None:
            return comparator.compare(tier, definition, inputs, expected, actual)
        if tier == "strict":
            return compare_strict(definition, expected, actual, magnitudes)
        return compare_contest(definition, expected, actual, strict=strict)

    strict = compare("strict") if comparator is None else None
    if kind == "stress":
        detail = "the contest's rule is not made for stress inputs"
        contest = TierResult(
            tier="contest", verdict="n/a", reason=Reason(code="stress-inputs", detail=detail)
        )
    else:
        contest = compare("contest")
    return {"contest": contest, "strict": strict or compare("strict")}


def null_kernel_reason(
    definition: Definition,
    inputs: Mapping[str, Any],
    expected: Mapping[str, Any],
    comparator: Comparator | None = None,
) -> Reason | None:
    """Why these inputs cannot discriminate: an output of zeros passes the strict tier.

    Returns:
        A reason for the verdict ``invalid``, or None where zeros are recognised as wrong.
    """
    outputs = [expected[name] for name in definition.outputs if expected[name].numel() > 1]
    if comparator is None and outputs and all(map(_is_one_value, outputs)):
        detail = "a kernel that writes one value everywhere is accepted"
        return Reason(code="null-kernel-passes", detail=detail)
    if comparator is None and any(bool(expected[name].any()) for name in definition.outputs):
        # The largest row of an output is at least its rms, so zeros there exceed any bound.
        return None
    zeros = {
        name: _declared(definition, name, expected[name]).new_zeros(expected[name].shape)
        for name in definition.outputs
    }
    tiers = compare_all(definition, inputs, expected, zeros, comparator, kind="stress")
    if tiers["strict"].verdict != "pass":
        return None
    return Reason(code="null-kernel-passes", detail="a kernel that writes only zeros is accepted")


def _is_one_value(tensor: Any) -> bool:
    low, high = tensor.aminmax()
    return bool(low == high)


def compare_contest(
    definition: Definition,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    *,
    strict: TierResult | None = None,
) -> TierResult:
    """The contest's element-wise rule over all outputs, against the rounded reference.

    Args:
        definition: the operator.
        expected: the reference's unrounded outputs, by name.
        actual: the candidate's outputs, by name.
        strict: the other tier's result, where it is known: no element of an output can be
            wrong here whose largest absolute error is within ``atol``.
    """
    tolerance = definition.kopt.contest
    known = {error.output: error for error in strict.outputs} if strict else {}
    findings = []
    for name in definition.outputs:
        error, unrounded = known.get(name), expected[name]
        if error and _is_within(error, tolerance.atol - _rounding(actual[name].dtype, unrounded)):
            within = error.model_copy(update={"max_rel": None, "matched_ratio": 1.0})
            findings.append(OutputFinding(within))
            continue
        declared = _declared(definition, name, unrounded)
        findings.append(contest_output(name, declared, actual[name], tolerance))
    return tier_result("contest", findings)


def _rounding(dtype: Any, unrounded: Any) -> float:
    """What rounding to a type changes at most; NaN or infinite where a number is."""
    import torch

    if unrounded.dtype == dtype or not unrounded.numel():
        return 0.0
    if not (dtype.is_floating_point and unrounded.dtype.is_floating_point):
        return math.inf
    return float(torch.finfo(dtype).eps) * float(unrounded.abs().amax())


def _is_within(error: OutputError, atol: float) -> bool:
    """Whether an output is right and, being finite, off by no more than a tolerance."""
    return error.ok and error.max_abs is not None and error.max_abs <= atol


def compare_strict(
    definition: Definition,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    magnitudes: Magnitudes | None = None,
) -> TierResult:
    """The strict rule over all outputs, against the unrounded reference."""
    bounds = definition.kopt.strict
    findings: list[OutputFinding] = [
        strict_output(name, expected[name], actual[name], bounds[name], magnitudes)
        for name in definition.outputs
    ]
    return tier_result("strict", findings)


def _declared(definition: Definition, name: str, tensor: Any) -> Any:
    """The tensor in the output's declared dtype."""
    import torch

    return tensor.to(getattr(torch, definition.outputs[name].dtype))
