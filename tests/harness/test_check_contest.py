from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kopt_harness.check import contest_output
from kopt_harness.schema import ContestTolerance

DEFAULT = ContestTolerance()


def test_an_element_fails_only_if_both_errors_exceed() -> None:
    """A large absolute error of a large value and a large relative one of a small value pass."""
    expected = torch.tensor([[1000.0, 1e-4, 3.0]])
    actual = torch.tensor([[1009.0, 9e-3, 3.0]])
    finding = contest_output("output", expected, actual, DEFAULT)
    assert finding.error.ok
    assert finding.error.max_abs == pytest.approx(9.0)
    assert finding.error.max_rel == pytest.approx(89.0, rel=1e-3)


def test_the_tolerances_are_not_added() -> None:
    """2.0201 against 2.0 is refused at 1e-2/1e-2, although torch.allclose accepts it."""
    expected, actual = torch.tensor([2.0]), torch.tensor([2.0201])
    assert torch.allclose(actual, expected, atol=1e-2, rtol=1e-2)
    finding = contest_output("output", expected, actual, DEFAULT)
    assert not finding.error.ok
    assert finding.reason is not None
    assert finding.reason.code == "wrong-answer"
    assert "torch.allclose, which adds both tolerances, would accept it" in finding.reason.detail


def test_the_other_rule_is_named_only_where_it_differs() -> None:
    """An element that torch.allclose refuses as well says nothing of it."""
    finding = contest_output("output", torch.tensor([2.0]), torch.tensor([2.5]), DEFAULT)
    assert finding.reason is not None
    assert "allclose" not in finding.reason.detail


@pytest.mark.parametrize(("wrong", "accepted"), [(10, True), (11, False)])
def test_the_required_ratio_is_reached_or_not(wrong: int, accepted: bool) -> None:
    """At a required ratio of 0.9, ten wrong elements of a hundred pass and eleven do not."""
    expected = torch.ones(10, 10)
    actual = expected.clone()
    actual.view(-1)[:wrong] = 5.0
    tolerance = ContestTolerance(required_matched_ratio=0.9)
    finding = contest_output("output", expected, actual, tolerance)
    assert finding.error.ok is accepted
    assert finding.error.matched_ratio == pytest.approx(1 - wrong / 100)
    assert ("0.9 of them must not" in finding.error.detail) is not accepted


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_ratio_excuses_a_non_finite_element(value: float) -> None:
    """One NaN or infinity refuses an output, whatever share of elements may be wrong."""
    expected = torch.ones(100, 7)
    actual = expected.clone()
    actual[42, 3] = value
    tolerance = ContestTolerance(required_matched_ratio=0.1)
    finding = contest_output("output", expected, actual, tolerance)
    assert not finding.error.ok
    assert finding.error.first_wrong is not None
    assert finding.error.first_wrong.index == (42, 3)
    assert finding.error.first_wrong.actual == str(value)
    assert finding.error.max_abs is None


def test_a_reference_that_is_not_finite_is_invalid() -> None:
    """A NaN in the reference, which the official rule takes for a wildcard, decides nothing."""
    expected = torch.tensor([1.0, float("nan")])
    finding = contest_output("output", expected, torch.tensor([1.0, 1e6]), DEFAULT)
    assert finding.invalid
    assert not finding.error.ok
    assert finding.reason is not None
    assert finding.reason.code == "reference-not-finite"


def test_an_overflowing_difference_of_finite_values_is_a_wrong_element() -> None:
    """Values at both ends of float32 are wrong, not non-finite."""
    expected, actual = torch.tensor([3e38, 1.0]), torch.tensor([-3e38, 1.0])
    finding = contest_output("output", expected, actual, DEFAULT)
    assert not finding.error.ok
    assert finding.error.matched_ratio == 0.5
    assert finding.error.max_abs is None


def test_an_output_without_elements_passes() -> None:
    """The official rule accepts an empty output."""
    empty = torch.empty(0, 128)
    assert contest_output("output", empty, empty, DEFAULT).error.ok


def test_the_first_wrong_element_is_found_in_any_piece() -> None:
    """In a tensor of many pieces the first of two wrong elements is named, with both values."""
    expected = torch.ones(3, 1000, 1000)
    actual = expected.clone()
    actual[1, 900, 17] = 2.0
    actual[2, 5, 5] = 7.0
    error = contest_output("new_state", expected, actual, DEFAULT).error
    assert error.first_wrong is not None
    assert error.first_wrong.model_dump() == {
        "output": "new_state",
        "index": (1, 900, 17),
        "expected": 1.0,
        "actual": 2.0,
    }
    assert error.max_abs == 6.0
    assert "[1, 900, 17]" in error.detail


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([3, 4], dtype=torch.int32),
        lambda: torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn),
        lambda: torch.tensor(2.5),
    ],
    ids=["int32", "float8", "no-axes"],
)
def test_every_kind_of_tensor_can_be_compared(make: Callable[[], torch.Tensor]) -> None:
    """Integers, fp8 and tensors without axes go through float32 like everything else."""
    expected = make()
    assert contest_output("output", expected, make(), DEFAULT).error.ok
    other = torch.zeros_like(expected)
    finding = contest_output("output", expected, other, DEFAULT)
    assert not finding.error.ok


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    error_exponent=st.floats(-4, 0),
    atol=st.sampled_from([1e-3, 1e-2, 1.0]),
    rtol=st.sampled_from([1e-3, 1e-2, 0.3]),
)
def test_the_rule_is_the_official_formula(
    seed: int, error_exponent: float, atol: float, rtol: float
) -> None:
    """On random tensors the count of wrong elements is that of the formula written out."""
    rng = torch.Generator().manual_seed(seed)
    expected = torch.randn(40, 9, generator=rng)
    actual = expected + torch.randn(40, 9, generator=rng) * 10**error_exponent
    pairs = zip(expected.view(-1).tolist(), actual.view(-1).tolist(), strict=True)
    errors = [(abs(x - y), abs(x - y) / (abs(y) + 1e-8)) for y, x in pairs]
    # An error within float32's resolution of a tolerance may fall on either side of it.
    assume(all(abs(a / atol - 1) > 1e-5 and abs(r / rtol - 1) > 1e-5 for a, r in errors))
    matched = 1 - sum(a > atol and r > rtol for a, r in errors) / len(errors)
    tolerance = ContestTolerance(atol=atol, rtol=rtol, required_matched_ratio=0.951)
    error = contest_output("output", expected, actual, tolerance).error
    assert error.matched_ratio == pytest.approx(matched, abs=1e-9)
    assert error.ok == (matched >= 0.951)
    assert error.max_abs == pytest.approx(max(a for a, _ in errors), rel=1e-4)
    assert error.max_rel == pytest.approx(max(r for _, r in errors), rel=1e-4)
