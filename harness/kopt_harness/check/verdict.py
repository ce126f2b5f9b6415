"""From findings on single outputs to the verdict of a tier."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from ..schema import FirstWrong, OutputError, Reason, TierResult

__all__ = ["OutputFinding", "Pair", "first_wrong", "scalar", "tier_result"]

Tier = Literal["contest", "strict"]


class Pair(NamedTuple):
    """One output of both sides: same shape, same device."""

    name: str
    expected: Any
    """The reference, as the tier compares it."""
    actual: Any
    """The candidate's output."""

    def first_wrong(self, flat_index: int) -> FirstWrong:
        """The element of both sides at a position in row-major order."""
        return first_wrong(self.name, flat_index, self.expected, self.actual)


class OutputFinding(NamedTuple):
    """What a tier says of one output."""

    error: OutputError
    reason: Reason | None = None
    """Why the output is not accepted; None where it is."""
    invalid: bool = False
    """Whether the reference, not the candidate, is at fault."""


def scalar(value: Any) -> float | int | str:
    """A Python number for JSON; what JSON cannot hold becomes ``nan``, ``inf`` or ``-inf``."""
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return number  # type: ignore[no-any-return]


def first_wrong(output: str, flat_index: int, expected: Any, actual: Any) -> FirstWrong:
    """Name one element of two tensors of the same shape.

    Args:
        output: name of the output.
        flat_index: position in row-major order.
        expected: the reference, as the tier compares it.
        actual: the candidate's output.
    """
    index: list[int] = []
    rest = flat_index
    for extent in reversed(expected.shape):
        rest, position = divmod(rest, extent)
        index.insert(0, position)
    where = tuple(index)
    return FirstWrong(
        output=output,
        index=where,
        expected=scalar(expected[where]),
        actual=scalar(actual[where]),
    )


def tier_result(tier: Tier, findings: Iterable[OutputFinding]) -> TierResult:
    """The verdict over all outputs: invalid before fail before pass, first reason kept."""
    found = tuple(findings)
    invalid = next((f for f in found if f.invalid), None)
    decisive = invalid or next((f for f in found if not f.error.ok), None)
    verdict: Literal["pass", "fail", "invalid"] = "pass"
    if decisive is not None:
        verdict = "invalid" if decisive.invalid else "fail"
    return TierResult(
        tier=tier,
        verdict=verdict,
        outputs=tuple(f.error for f in found),
        reason=decisive.reason if decisive else None,
    )
