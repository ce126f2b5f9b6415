"""The contest tier: the rule by which FlashInfer-Bench decides.

Both tensors are compared in float32. An element is wrong only if its absolute error
exceeds ``atol`` **and** its relative error, |x - y| / (|y| + 1e-8), exceeds ``rtol``;
this is up to twice as strict as ``torch.allclose``, which adds the two tolerances. An
output is accepted if the share of elements that are not wrong reaches the required
ratio, and never if it holds a NaN or an infinity. An output without elements is
accepted. The one deviation: where the reference itself is not finite the official rule
accepts anything at all, which says nothing of the candidate, so the answer is ``invalid``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..schema import ContestTolerance, OutputError, Reason
from ._blocks import Block, as_rows, blocks
from .verdict import OutputFinding, Pair

__all__ = ["contest_output"]

_EPS = 1e-8
"""Added to |y| in the relative error; part of the official rule."""


class _Total(NamedTuple):
    """Over one output."""

    wrong: int
    max_abs: float
    max_rel: float


class _Errors(NamedTuple):
    """Of one block, (rows, width) each."""

    absolute: Any
    relative: Any

    def exceeds(self, tolerance: ContestTolerance) -> Any:
        """Where both tolerances are exceeded; never where an error is NaN, as officially."""
        return (self.absolute > tolerance.atol) & (self.relative > tolerance.rtol)


def contest_output(
    name: str, expected: Any, actual: Any, tolerance: ContestTolerance
) -> OutputFinding:
    """Apply the contest's rule to one output.

    Args:
        name: name of the output.
        expected: the reference, rounded to the declared dtype.
        actual: the candidate's output, same shape and device.
        tolerance: the definition's.

    Returns:
        Largest element-wise errors, matched ratio and, on failure, the first wrong element.
    """
    assert expected.shape == actual.shape, name
    numel = expected.numel()
    if numel == 0:
        return _accepted(name, _Total(0, 0.0, 0.0), 1.0)
    pair = Pair(name, expected, actual)
    expected_rows, actual_rows = as_rows(expected), as_rows(actual)
    total = _totals(expected_rows, actual_rows, tolerance)
    finite = math.isfinite(total.max_abs)
    if not finite:
        position = _first_non_finite(expected_rows)
        if position is not None:
            return _invalid(pair, position)
        bad = _first_non_finite(actual_rows)
        if bad is not None:
            detail = f"{name!r} holds a NaN or an infinity"
            return _refused(pair, "non-finite-output", detail, 0.0, bad)
    matched = 1.0 - total.wrong / numel
    if matched >= tolerance.required_matched_ratio:
        return _accepted(name, total, matched)
    detail = (
        f"{total.wrong} of {numel} elements of {name!r} differ by more than "
        f"{tolerance.atol:g} and by more than {tolerance.rtol:g} of the reference"
    )
    if tolerance.required_matched_ratio < 1:
        detail += f", and {tolerance.required_matched_ratio:g} of them must not"
    if _all_close(expected_rows, actual_rows, tolerance):
        detail += "; torch.allclose, which adds both tolerances, would accept it"
    position = _first_exceeding(expected_rows, actual_rows, tolerance)
    finding = _refused(pair, "wrong-answer", detail, matched, position)
    errors = {"max_abs": _or_none(total.max_abs), "max_rel": _or_none(total.max_rel)}
    return finding._replace(error=finding.error.model_copy(update=errors))


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _accepted(name: str, total: _Total, matched: float) -> OutputFinding:
    return OutputFinding(
        OutputError(
            output=name,
            max_abs=_or_none(total.max_abs),
            max_rel=_or_none(total.max_rel),
            matched_ratio=matched,
            ok=True,
        )
    )


def _refused(pair: Pair, code: str, detail: str, matched: float, position: int) -> OutputFinding:
    wrong = pair.first_wrong(position)
    detail += f"; first at {list(wrong.index)}: expected {wrong.expected}, got {wrong.actual}"
    error = OutputError(
        output=pair.name,
        max_abs=None,
        max_rel=None,
        matched_ratio=matched,
        ok=False,
        first_wrong=wrong,
        detail=detail,
    )
    return OutputFinding(error, Reason(code=code, detail=detail))


def _invalid(pair: Pair, position: int) -> OutputFinding:
    detail = f"the reference of {pair.name!r} is not finite"
    finding = _refused(pair, "reference-not-finite", detail, 0.0, position)
    return finding._replace(invalid=True)


def _errors(block: Block) -> _Errors:
    import torch

    expected = block.expected.to(torch.float32)
    absolute = (block.actual.to(torch.float32) - expected).abs_()
    return _Errors(absolute, absolute / expected.abs().add_(_EPS))


def _totals(expected: Any, actual: Any, tolerance: ContestTolerance) -> _Total:
    """One pass; the maxima are NaN if an error anywhere is."""
    import torch

    parts = []
    for block in blocks(expected, actual):
        errors = _errors(block)
        wrong = errors.exceeds(tolerance).sum()
        largest = torch.stack((errors.absolute.amax(), errors.relative.amax()))
        parts.append(torch.cat((wrong.double().reshape(1), largest.double())))
    totals = torch.stack(parts).cpu()
    max_abs, max_rel = totals[:, 1:].amax(0).tolist()
    return _Total(int(totals[:, 0].sum()), max_abs, max_rel)


def _all_close(expected: Any, actual: Any, tolerance: ContestTolerance) -> bool:
    """Whether the rule that this one is often taken for would accept the output."""
    for block in blocks(expected, actual):
        limit = tolerance.atol + tolerance.rtol * block.expected.double().abs()
        error = (block.actual.double() - block.expected.double()).abs()
        if not bool((error <= limit).all()):
            return False
    return True


def _first_exceeding(expected: Any, actual: Any, tolerance: ContestTolerance) -> int:
    for block in blocks(expected, actual):
        where = _errors(block).exceeds(tolerance).reshape(-1)
        if where.any():
            return block.start * int(expected.shape[1]) + int(where.int().argmax())
    return 0  # a required ratio above 1 refuses an output without a wrong element


def _first_non_finite(rows: Any) -> int | None:
    import torch

    for block in blocks(rows, rows):
        where = block.actual.to(torch.float32).isfinite().logical_not_().reshape(-1)
        if where.any():
            return block.start * int(rows.shape[1]) + int(where.int().argmax())
    return None
