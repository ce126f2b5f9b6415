"""The contest tier against an installed FlashInfer-Bench, on outputs made for its borders.

Skipped where the package is not installed; the recorded cases of test_contest_parity.py
are compared everywhere.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.check import compare_all, contest_output
from kopt_harness.schema import ContestTolerance, Definition

utils: Any = pytest.importorskip("flashinfer_bench.bench.utils")

REFERENCES = [0.0, -0.0, 1e-45, 1e-30, 1e-8, 0.003, 1.0, -2.0, 3.3333, 1e4, -3e38]
DTYPES = ("float32", "bfloat16", "float16")


class Sides(NamedTuple):
    """Two outputs of one shape."""

    expected: torch.Tensor
    actual: torch.Tensor


@st.composite
def tolerances(draw: st.DrawFn) -> ContestTolerance:
    """The contest's own, and others."""
    atol, rtol = draw(st.sampled_from([(1e-2, 1e-2), (1.0, 0.3), (1e-3, 1e-2), (1e-5, 1e-4)]))
    ratio = draw(st.one_of(st.sampled_from([1.0, 0.95, 0.9]), st.integers(1, 99).map(_percent)))
    return ContestTolerance(atol=atol, rtol=rtol, required_matched_ratio=ratio)


def _percent(number: int) -> float:
    return number / 100


@st.composite
def outputs(draw: st.DrawFn, tolerance: ContestTolerance) -> Sides:
    """Elements a few units in the last place around the border of the rule, or far off."""
    dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
    reference = draw(st.lists(st.sampled_from(REFERENCES), min_size=1, max_size=40))
    expected = torch.tensor(reference, dtype=torch.float64).clamp(-6e4, 6e4).to(dtype)
    actual = torch.empty_like(expected)
    for index, value in enumerate(expected.double().tolist()):
        edge = max(tolerance.atol, tolerance.rtol * (abs(value) + 1e-8))
        factor = draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 1.5]))
        side = draw(st.sampled_from([1.0, -1.0]))
        element = torch.tensor(value + side * factor * edge, dtype=torch.float64).to(dtype)
        towards = torch.tensor(draw(st.sampled_from([math.inf, -math.inf])), dtype=dtype)
        for _ in range(draw(st.integers(0, 3))):
            element = torch.nextafter(element, towards)
        actual[index] = element
    return Sides(expected, actual)


def _official(sides: Sides, tolerance: ContestTolerance) -> Any:
    """Largest errors, whether they exceed, and the matched share, as the package has them."""
    config = SimpleNamespace(**tolerance.model_dump())
    return utils.compute_error_stats(sides.actual, sides.expected, config)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_verdict_share_and_errors_are_those_of_the_package(data: st.DataObject) -> None:
    """Bit for bit, in every dtype, whatever the tolerances and the required share."""
    tolerance = data.draw(tolerances())
    sides = data.draw(outputs(tolerance))
    max_abs, max_rel, exceeds, matched = _official(sides, tolerance)
    error = contest_output("output", *sides, tolerance).error
    if not bool(sides.actual.isfinite().all()):
        assert not error.ok  # the evaluator refuses these before it computes errors
        return
    assert error.ok is not exceeds
    assert error.matched_ratio == matched
    assert (error.max_abs, error.max_rel) == (max_abs, max_rel)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_the_judge_calls_keeps_the_verdict(data: st.DataObject) -> None:
    """Both tiers together, where one may spare the other work, decide as the rule alone."""
    tolerance = data.draw(tolerances())
    sides = data.draw(outputs(tolerance))
    definition = Definition.model_validate(
        {
            "name": "parity",
            "op_type": "parity",
            "description": "",
            "axes": {"n": {"type": "var"}},
            "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
            "outputs": {"y": {"shape": ["n"], "dtype": str(sides.actual.dtype)[6:]}},
            "kopt": {
                "alias": "parity",
                "contest": tolerance.model_dump(),
                "strict": {"y": {"rel": 0.01, "source": "a test"}},
                "regime_axes": ["n"],
            },
        }
    )
    expected, actual = {"y": sides.expected}, {"y": sides.actual}
    tiers = compare_all(definition, {}, expected, actual)
    _, _, exceeds, _ = _official(sides, tolerance)
    accepted = not exceeds and bool(sides.actual.isfinite().all())
    assert (tiers["contest"].verdict == "pass") is accepted


@pytest.mark.parametrize("numel", [1, 7, 10, 30, 100, 1000])
def test_every_share_of_wrong_elements(numel: int) -> None:
    """For every count of wrong elements and every hundredth as the required share."""
    for wrong in range(0, numel + 1, max(1, numel // 50)):
        actual = torch.ones(numel)
        actual[:wrong] = 3.0
        sides = Sides(torch.ones(numel), actual)
        for hundredths in range(1, 101, 3 if numel > 100 else 1):
            tolerance = ContestTolerance(required_matched_ratio=hundredths / 100)
            _, _, exceeds, _ = _official(sides, tolerance)
            assert contest_output("output", *sides, tolerance).error.ok is not exceeds
