from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.check import OutputFinding, strict_output
from kopt_harness.schema import StrictBound

NAN, INF = float("nan"), float("inf")


def _compare(expected: torch.Tensor, actual: torch.Tensor, rel: float = 1e-3) -> OutputFinding:
    return strict_output("output", expected, actual, StrictBound(rel=rel, source="this test"))


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_an_error_in_a_small_row_shows() -> None:
    """A row a thousand times smaller than the others may not be twice too large."""
    expected = _random(50, 33)
    expected[31] *= 1e-3
    actual = expected.clone()
    actual[31] *= 2
    error = _compare(expected, actual).error
    assert not error.ok
    assert error.first_wrong is not None
    assert error.first_wrong.index[0] == 31
    assert error.matched_ratio == pytest.approx(49 / 50)
    assert error.max_rel == pytest.approx(1.0)


def test_one_wrong_element_does_not_hide_in_a_long_row() -> None:
    """An element off by ten times the bound fails, though the row's norm is within it."""
    expected = _random(4, 10_000)
    actual = expected.clone()
    actual[2, 77] += 1e-2 * (1 + expected[2, 77].abs())
    assert (actual - expected)[2].norm() < 1e-3 * expected[2].norm()
    error = _compare(expected, actual).error
    assert not error.ok
    assert error.first_wrong is not None
    assert error.first_wrong.index == (2, 77)
    assert error.matched_ratio == pytest.approx(1 - 1 / 40_000)


def test_an_even_error_of_a_row_fails_by_its_norm() -> None:
    """A row that is off by 1.5 times the bound everywhere fails, with no element over the cap."""
    expected = _random(6, 128)
    actual = expected.clone()
    actual[4] *= 1.0015
    error = _compare(expected, actual).error
    assert not error.ok
    assert error.first_wrong is not None
    assert error.first_wrong.index == (4, int(expected[4].abs().argmax()))


@pytest.mark.parametrize(("residue", "accepted"), [(0.0, True), (1e-12, True), (1e-6, False)])
def test_a_zero_row_is_nearly_zero(residue: float, accepted: bool) -> None:
    """Next to rows of size one a zero row may hold a vanishing residue, nothing that counts."""
    expected = _random(16, 64)
    expected[5] = 0.0
    actual = expected.clone()
    actual[5] = residue
    assert _compare(expected, actual).error.ok is accepted


def test_an_output_of_zeros_must_be_zeros() -> None:
    """Where the whole reference is zero there is no scale, so only zero is right."""
    zeros = torch.zeros(3, 8)
    assert _compare(zeros, zeros).error.ok
    assert not _compare(zeros, zeros + 1e-30).error.ok


@pytest.mark.parametrize("index", [(0, 0), (19, 6), (19, 127), (39, 127)])
def test_a_nan_never_passes(index: tuple[int, int]) -> None:
    """A NaN is wrong wherever it is, whatever the bound."""
    expected = _random(40, 128)
    actual = expected.clone()
    actual[index] = NAN
    error = _compare(expected, actual, rel=1e6).error
    assert not error.ok
    assert error.first_wrong is not None
    assert error.first_wrong.index == index
    assert error.first_wrong.actual == "nan"
    assert error.max_abs is None


@pytest.mark.parametrize(
    ("reference", "output", "accepted"),
    [
        (-INF, -INF, True),
        (INF, INF, True),
        (-INF, INF, False),
        (-INF, -1e30, False),
        (-INF, NAN, False),
        (0.5, INF, False),
    ],
)
def test_infinities_match_by_sign(reference: float, output: float, accepted: bool) -> None:
    """An infinity is right only where the reference has the same, and excuses no neighbour."""
    expected, actual = _random(5, 16), _random(5, 16)
    expected[3, 2], actual[3, 2] = reference, output
    assert _compare(expected, actual).error.ok is accepted
    actual[3, 3] += 1.0
    assert not _compare(expected, actual).error.ok


def test_a_nan_in_the_reference_is_invalid() -> None:
    """Nothing can be said of a candidate whose reference is NaN, even if both are."""
    expected = _random(5, 16)
    expected[1, 1] = NAN
    finding = _compare(expected, expected.clone())
    assert finding.invalid
    assert finding.reason is not None
    assert finding.reason.code == "reference-not-finite"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_integers_are_exact(dtype: torch.dtype) -> None:
    """One integer off by one is wrong under any bound."""
    expected = torch.tensor([[0, 1, 0], [1, 0, 1]], dtype=dtype)
    assert _compare(expected, expected.clone(), rel=10.0).error.ok
    actual = expected.clone()
    actual[1, 2] = 0
    error = _compare(expected, actual, rel=10.0).error
    assert error.first_wrong is not None
    assert error.first_wrong.model_dump()["index"] == (1, 2)
    assert (error.first_wrong.expected, error.first_wrong.actual) == (1, 0)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-13, 1e-6, 1e14, 1e25, 1e37])
def test_the_rule_does_not_depend_on_the_scale(scale: float) -> None:
    """Right stays right and wrong stays wrong where float32 squares under- or overflow."""
    expected = (_random(20, 60).double().sign() + 0.25 * _random(20, 60, seed=1).double()) * scale
    right, wrong = expected * (1 + 2e-4), expected.clone()
    wrong[7, 11] *= 1.5
    assert _compare(expected.float(), right.float()).error.ok
    error = _compare(expected.float(), wrong.float()).error
    assert not error.ok
    assert error.first_wrong is not None
    assert error.first_wrong.index == (7, 11)


def test_rubbish_in_one_row_of_many_is_wrong() -> None:
    """A share of wrong rows that a matched ratio would forgive is not forgiven."""
    expected = _random(1000, 256)
    actual = expected.clone()
    actual[998] = 1e30
    error = _compare(expected, actual, rel=0.1).error
    assert not error.ok
    assert error.matched_ratio == pytest.approx(0.999)


def test_a_float64_reference_is_not_rounded() -> None:
    """An error below float32's resolution is seen against a float64 reference."""
    expected = _random(3, 50).double()
    assert not _compare(expected, expected * (1 + 1e-9), rel=1e-10).error.ok
    assert _compare(expected, expected * (1 + 1e-9), rel=1e-8).error.ok


def test_no_axes_and_no_elements() -> None:
    """A scalar tensor is one row; an empty output has nothing wrong."""
    assert _compare(torch.tensor(2.0), torch.tensor(2.001)).error.ok
    assert not _compare(torch.tensor(2.0), torch.tensor(2.01)).error.ok
    assert _compare(torch.empty(4, 0), torch.empty(4, 0)).error.ok


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 40), width=st.integers(1, 300))
def test_rounding_to_bfloat16_is_within_its_unit(seed: int, rows: int, width: int) -> None:
    """bfloat16 rounding alone never exceeds a bound of 2^-8; a row 1 % off always exceeds it."""
    rng = torch.Generator().manual_seed(seed)
    expected = torch.randn(rows, width, generator=rng) * torch.randn(rows, 1, generator=rng).exp()
    assert _compare(expected, expected.to(torch.bfloat16), rel=2**-8).error.ok
    actual = expected.clone()
    actual[seed % rows] *= 1.01
    assert not _compare(expected, actual, rel=2**-8).error.ok


def test_the_first_of_many_doubtful_pieces_is_named() -> None:
    """With every row wrong in a tensor of several pieces, the first element is named."""
    expected = _random(3, 3000, 1000) + 5.0
    error = _compare(expected, expected * 2).error
    assert error.first_wrong is not None
    assert error.first_wrong.index == (0, 0, 0)
    assert error.matched_ratio == 0.0


def _cancelled(
    actual: torch.Tensor, expected: torch.Tensor, size: float, share: float = 0.25
) -> OutputFinding:
    bound = StrictBound(rel=1e-2, cancelled=share, source="this test")
    rows = torch.full((expected.shape[0],), size)
    return strict_output("output", expected, actual, bound, lambda _: rows)


def test_a_row_that_cancels_is_measured_against_its_terms() -> None:
    """What rounding the terms leaves of a row is accepted, and no more than that."""
    expected = _random(512, 128)
    size = float(expected.norm(dim=1).mean())
    expected[7] *= 0.01
    error = _random(128, seed=1)
    error *= 0.2e-2 * size / error.norm()
    off = expected.clone()
    off[7] += error
    assert not _compare(expected, off, rel=1e-2).error.ok
    assert _cancelled(off, expected, size).error.ok
    assert not _cancelled(off, expected, size, share=0.1).error.ok
    assert not _cancelled(off, expected, 0.1 * size).error.ok
    off[7] += error
    assert not _cancelled(off, expected, size).error.ok
    zeros = expected.clone()
    zeros[7] = 0.0
    assert not _cancelled(zeros, expected, size).error.ok


@pytest.mark.parametrize("value", [NAN, INF, 1e3])
def test_cancellation_excuses_no_rubbish(value: float) -> None:
    """An element that is not finite, or far off, is wrong in any row, whatever its magnitude."""
    expected = _random(64, 128)
    expected[3] *= 0.01
    off = expected.clone()
    off[3, 5] = value
    assert not _cancelled(off, expected, 12.0).error.ok
    assert not _cancelled(off, expected, NAN).error.ok
    assert not _cancelled(off, expected, INF).error.ok


def test_cancellation_excuses_few_rows() -> None:
    """Where more rows are off than chance cancels, none of them is excused."""
    expected = 0.01 * _random(128, 128)
    off = expected.clone()
    for rows, accepted in ((4, True), (5, False)):
        off[:rows] = expected[:rows] + 2e-4
        assert _cancelled(off, expected, 11.3).error.ok is accepted


def test_magnitudes_are_asked_of_rows_in_doubt_alone() -> None:
    """A right output costs no second computation."""

    def never(_: str) -> torch.Tensor:
        raise AssertionError("asked")

    expected = _random(16, 128)
    bound = StrictBound(rel=1e-2, cancelled=0.25, source="this test")
    assert strict_output("output", expected, expected * 1.001, bound, never).error.ok


def _blocks_of_their_own(block: int) -> StrictBound:
    return StrictBound(rel=0.06, block=block, source="this test")


def test_a_block_under_a_scale_of_its_own_errs_by_that_scale() -> None:
    """Rows of 56 blocks, one eight times as large: what its small elements are off is rounding."""
    expected = _random(64, 56, 128)
    expected[:, 5] *= 8
    # An honest error of 2.5 % of each block.
    actual = expected + 0.025 * expected.square().mean(2, keepdim=True).sqrt() * _random(
        64, 56, 128, seed=1
    )
    rows = expected.flatten(1), actual.flatten(1)
    assert not strict_output("output", *rows, _blocks_of_their_own(0)).error.ok
    assert strict_output("output", *rows, _blocks_of_their_own(128)).error.ok


def test_a_block_excuses_nobody_else() -> None:
    """One wrong element fails in a small block, in the large one, and where no block fits."""
    expected = _random(4, 56, 128)
    expected[:, 5] *= 8
    expected = expected.flatten(1)
    for column, off in ((5 * 128 + 3, 8.0), (77, 2.0)):
        actual = expected.clone()
        actual[2, column] += off
        error = strict_output("output", expected, actual, _blocks_of_their_own(128)).error
        assert error.first_wrong is not None
        assert error.first_wrong.index == (2, column)
    cut, actual = expected[:, :100], expected[:, :100].clone()
    actual[2, 77] += 2.0
    assert not strict_output("output", cut, actual, _blocks_of_their_own(128)).error.ok
