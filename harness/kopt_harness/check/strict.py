"""The strict tier: errors measured against the size of what is computed.

The reference is not rounded to the output's dtype. A row is the last axis. With ``rel``
the definition's bound for the output, r a reference row of n elements, x the candidate's:

* ``||x - r|| <= rel * ||r||`` in the 2-norm, so that an error that an absolute
  tolerance would hide in a small row shows;
* every element within ``4 * rel * (|r| + rms(r))``, so that one wrong element cannot
  hide in a long row; with ``block`` in the bound, the rms is that of the element's block of the row
  where that is larger: a block under a scale of its own errs by that scale;
* both are widened by ``2**-20`` of the whole output's rms, times ``rel``: what a
  legitimately vanishing row (decayed away, masked) may hold instead of an exact zero;
* where the terms of a row cancel, rounding them is an error that the row itself is no measure of:
  with ``cancelled`` in the bound, ``||r||`` is at least that share of the row's magnitude, which
  the definition's reference computes. It is asked only for rows that are wrong without it, and
  only where these are at most one in 32: chance cancels few;
* an infinity in the reference must be met by the same infinity; a NaN in the candidate
  is always wrong, and a NaN in the reference makes the comparison invalid;
* integers and booleans are equal or wrong, whatever ``rel``.

All rows must be right. There is no allowance of wrong elements: a share of the whole
output would permit whole rows of rubbish. Sums of squares that leave the range of
float32 and every row in doubt are decided in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..schema import OutputError, Reason, StrictBound
from ._blocks import as_rows, blocks, rows_at_once
from .verdict import OutputFinding, Pair

__all__ = ["Magnitudes", "strict_output"]

Magnitudes = Callable[[str], Any]
"""By name of an output: (rows,), what a row's 2-norm would be if its terms did not cancel."""

_CAP = 4.0
"""An element may be this many times further off than the row is on average."""

_FLOOR = 2.0**-20
"""Of the output's rms; rows that much smaller count as zero."""

_CANCELLED_ROWS = 32
"""One row in so many, or one in all, may be excused by cancellation."""

_FLOAT32_SAFE = (1e-12, 1e15)
"""Row norms whose squares, and those of errors 1e-6 as large, are normal float32 numbers."""


class _Rows(NamedTuple):
    """Statistics of each row, NumPy arrays of float64, (rows,): small, and asked much."""

    reference: Any
    """2-norm of the reference; not finite where the row is not."""
    error: Any
    """2-norm of the difference; NaN where either side has a NaN."""
    largest: float
    """Largest absolute difference of all rows; NaN where one is."""


class _Doubt(NamedTuple):
    """What closer inspection of doubtful rows found."""

    wrong: int
    """Elements."""
    first: int | None
    """Row-major position of the first wrong element."""
    nan_reference: int | None
    """Row-major position of the first NaN of the reference."""
    rows: Any = None
    """Rows that hold wrong elements; (wrong rows,) int64."""


_NO_DOUBT = _Doubt(0, None, None)


class _Summary(NamedTuple):
    """Everything that is reported of one output."""

    max_abs: float
    max_rel: float | None
    doubt: _Doubt


def strict_output(
    name: str,
    expected: Any,
    actual: Any,
    bound: StrictBound,
    magnitudes: Magnitudes | None = None,
) -> OutputFinding:
    """Apply the strict rule to one output.

    Args:
        name: name of the output.
        expected: the reference in float32 or better; an integer output as declared.
        actual: the candidate's output, same shape and device.
        bound: how far a row may be off, relative to itself.
        magnitudes: of the output's rows, for a bound that knows of cancellation.

    Returns:
        Largest absolute error, largest relative error of a row, share of right elements
        and, on failure, the first wrong element.
    """
    import torch

    assert expected.shape == actual.shape, name
    pair = Pair(name, expected, actual)
    if expected.numel() == 0:
        return _finding(pair, bound, _Summary(0.0, 0.0, _NO_DOUBT))
    if not expected.dtype.is_floating_point:
        return _exact(pair, bound)
    expected_rows, actual_rows = as_rows(expected), as_rows(actual)
    stats = _row_statistics(expected_rows, actual_rows)
    width = expected_rows.shape[1]
    with np.errstate(all="ignore"):  # infinities and NaN are decided, not warned of
        floor = bound.rel * _FLOOR * _rms(stats.reference, width)
        doubtful = _doubtful(stats, expected_rows, actual_rows, _Limits(bound.rel, floor))
        seen = stats.reference > floor * math.sqrt(width)
        relative = stats.error[seen] / stats.reference[seen]
    doubt = _NO_DOUBT
    if doubtful.any():
        index = torch.from_numpy(doubtful.nonzero()[0]).to(expected.device)
        limits = _Limits(bound.rel, floor, block=bound.block)
        doubt = _inspect(expected_rows, actual_rows, index, limits)
    if doubt.wrong and bound.cancelled and magnitudes is not None:
        few = max(1, expected_rows.shape[0] // _CANCELLED_ROWS)
        if doubt.rows.numel() <= few:
            least = (bound.cancelled * magnitudes(name).double().to(expected.device))[doubt.rows]
            least = least.nan_to_num(0.0, 0.0, 0.0)
            limits = _Limits(bound.rel, floor, least, bound.block)
            doubt = _inspect(expected_rows, actual_rows, doubt.rows, limits)
    max_rel = float(relative.max()) if relative.size else 0.0
    return _finding(pair, bound, _Summary(stats.largest, max_rel, doubt))


def _row_statistics(expected: Any, actual: Any) -> _Rows:
    import torch

    norm = torch.linalg.vector_norm
    dtype = torch.float64 if expected.dtype == torch.float64 else torch.float32
    parts, extremes = [], []
    for block in blocks(expected, actual):
        reference = block.expected.to(dtype)
        difference = block.actual.to(dtype) - reference
        parts.append(torch.stack((norm(reference, dim=1), norm(difference, dim=1))))
        # Of the whole piece at once, which is quicker than row by row; NaN is both.
        extremes += torch.aminmax(difference)
    norms, errors = torch.cat(parts, dim=1).double().cpu().numpy()
    largest = float(torch.stack(extremes).double().abs_().amax())
    return _Rows(norms, errors, largest)


def _rms(norms: Any, width: int) -> float:
    """Root mean square of the finite rows of the reference."""
    finite = norms[np.isfinite(norms)]
    if not finite.size:
        return 0.0
    return math.sqrt(float(np.square(finite).mean()) / width)


class _Limits(NamedTuple):
    """What a row may be off."""

    rel: float
    floor: float
    least: Any = None
    """Norm that a row has at least, (rows,) float64; None where it is measured as it is."""
    block: int = 0
    """Neighbours in a row that share a scale; 0 where a row has one."""


def _doubtful(stats: _Rows, expected: Any, actual: Any, limits: _Limits) -> Any:
    """Rows that the cheap statistics do not show to be right; (rows,) bool.

    No element of a row is off by more than the 2-norm of its differences: where that is small
    enough for one element, and no square was lost, none is looked at.
    """
    import torch

    rel, floor = limits.rel, limits.floor
    root = math.sqrt(expected.shape[1])
    low, high = _FLOAT32_SAFE
    cap = _CAP * (rel * stats.reference / root + floor)

    of_size = stats.reference > low
    right = (stats.error <= rel * stats.reference + floor * root) & (stats.reference < high)
    unsure = (right & ~(of_size & (stats.error <= cap))).nonzero()[0]
    step = rows_at_once(expected, expected.shape[1])
    for start in range(0, unsure.size, step):
        part = unsure[start : start + step]
        index = torch.from_numpy(part).to(expected.device)
        difference = actual[index].double() - expected[index].double()
        largest = difference.abs_().amax(dim=1).cpu().numpy()
        right[part] = (largest <= cap[part]) & (of_size[part] | (largest <= floor))
    return ~right


def _inspect(expected: Any, actual: Any, index: Any, limits: _Limits) -> _Doubt:
    """Decide the rows of an index element by element, in float64."""
    import torch

    width = expected.shape[1]
    wrong, first, nan = 0, None, None
    rows = []
    step = rows_at_once(expected, width)
    for start in range(0, index.numel(), step):
        part = index[start : start + step]
        reference, output = expected[part].double(), actual[part].double()
        least = None if limits.least is None else limits.least[start : start + step]
        bad = _wrong_elements(reference, output, limits._replace(least=least))
        wrong += int(bad.wrong.sum())
        rows.append(part[bad.wrong.any(1)])
        if first is None:
            first = _position(bad.first, part, width)
        if nan is None:
            nan = _position(reference.isnan(), part, width)
    return _Doubt(wrong, first, nan, torch.cat(rows) if rows else index)


class _Wrong(NamedTuple):
    """Masks over (rows, width)."""

    wrong: Any
    """Every element that is not accepted: all of a row whose norm is too far off."""
    first: Any
    """Those worth naming: over the cap, of another class, or the worst of a bad row."""


def _wrong_elements(reference: Any, output: Any, limits: _Limits) -> _Wrong:
    rel, floor, least, block = limits
    finite = reference.isfinite()
    r = reference.where(finite, 0.0)
    error = (output - r).abs_().where(finite, 0.0)
    count = finite.sum(1, keepdim=True).clamp_(min=1)
    norm = r.square().sum(1, keepdim=True).sqrt_()
    if least is not None:
        norm = norm.maximum(least[:, None])
    size = norm / count.sqrt()
    if block and r.shape[1] % block == 0:
        size = size.maximum(block_rms(r, finite, block))
    limit = _CAP * (rel * (r.abs() + size) + floor)
    over = ~(error <= limit) | (~finite & (output != reference))
    distance = error.square().sum(1, keepdim=True).sqrt_()
    bad_row = ~(distance <= rel * norm + floor * count.sqrt())
    worst = error == error.amax(1, keepdim=True)
    named = over | (bad_row & worst & ~over.any(1, keepdim=True))
    return _Wrong(over | (bad_row & finite), named)


def block_rms(rows: Any, finite: Any, block: int) -> Any:
    """Root mean square of each element's block in its row, as wide as the rows.

    Args:
        rows: (rows, width), zeros where not finite.
        finite: which elements count, (rows, width) bool.
        block: of so many neighbours, a divisor of the width.
    """
    squares = rows.unflatten(1, (-1, block)).square().sum(2)
    count = finite.unflatten(1, (-1, block)).sum(2).clamp_(min=1)
    return (squares / count).sqrt_().repeat_interleave(block, dim=1)


def _position(mask: Any, rows: Any, width: int) -> int | None:
    flat = mask.reshape(-1)
    if not bool(flat.any()):
        return None
    row, column = divmod(int(flat.int().argmax()), width)
    return int(rows[row]) * width + column


def _exact(pair: Pair, bound: StrictBound) -> OutputFinding:
    expected, actual = pair.expected, pair.actual
    different = (expected != actual).reshape(-1)
    wrong = int(different.sum())
    largest = float((actual.double() - expected.double()).abs().amax())
    first = int(different.int().argmax()) if wrong else None
    return _finding(pair, bound, _Summary(largest, None, _Doubt(wrong, first, None)))


def _or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _finding(pair: Pair, bound: StrictBound, summary: _Summary) -> OutputFinding:
    name, numel, doubt = pair.name, pair.expected.numel(), summary.doubt
    position = doubt.first if doubt.nan_reference is None else doubt.nan_reference
    error = OutputError(
        output=name,
        max_abs=_or_none(summary.max_abs),
        max_rel=_or_none(summary.max_rel),
        matched_ratio=1.0 - doubt.wrong / max(1, numel),
        ok=position is None,
    )
    if position is None:
        return OutputFinding(error)
    wrong = pair.first_wrong(position)
    seen = f"first at {list(wrong.index)}: expected {wrong.expected}, got {wrong.actual}"
    if doubt.nan_reference is not None:
        code, detail = "reference-not-finite", f"the reference of {name!r} is NaN; {seen}"
    elif wrong.actual in {"nan", "inf", "-inf"}:
        code, detail = "non-finite-output", f"{name!r} is not finite where it should be; {seen}"
    else:
        code = "wrong-answer"
        detail = (
            f"{doubt.wrong} of {numel} elements of {name!r} are outside the strict "
            f"bound (rel {bound.rel:g} by row); {seen}"
        )
    error = error.model_copy(update={"first_wrong": wrong, "detail": detail})
    return OutputFinding(error, Reason(code=code, detail=detail), code == "reference-not-finite")
