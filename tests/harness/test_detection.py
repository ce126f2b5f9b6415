"""Detection probability and the exact bound on the share of failing draws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.bench.detection import (
    TABLE_RATES,
    detection_probability,
    detection_table,
    failure_rate_upper,
    trials_needed,
)


def binomial_tail(failures: int, trials: int, rate: float) -> float:
    """P(at most ``failures``), summed with exact integers for the coefficients."""
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1)
    )


def test_three_trials_miss_a_rare_fault_and_two_hundred_do_not() -> None:
    """A fault on 1.5 % of the draws is missed by three trials in 95 % of the cases."""
    assert detection_probability(0.015, 3) == pytest.approx(1 - 0.985**3)
    assert detection_probability(0.015, 3) < 0.05
    assert detection_probability(0.015, 200) > 0.95


@pytest.mark.parametrize(
    ("rate", "trials", "probability"),
    [(0.0, 10, 0.0), (1.0, 1, 1.0), (1.0, 0, 0.0), (0.5, 0, 0.0), (0.5, 2, 0.75)],
)
def test_probability_at_the_edges(rate: float, trials: int, probability: float) -> None:
    """Nothing that never fails is found, and nothing is found without a trial."""
    assert detection_probability(rate, trials) == probability


def test_a_tiny_rate_does_not_vanish_in_rounding() -> None:
    """1 - (1 - p)^n is not 0 where 1 - p rounds to 1."""
    assert detection_probability(1e-18, 1000) == pytest.approx(1e-15)


@pytest.mark.parametrize("arguments", [(-0.1, 1), (1.1, 1), (0.5, -1), (math.nan, 1)])
def test_what_is_no_share_is_refused(arguments: tuple[float, int]) -> None:
    """A rate outside 0 to 1 or a negative count is an error, not a number."""
    with pytest.raises(ValueError, match="no share"):
        detection_probability(*arguments)


def test_the_table_rises_with_the_rate() -> None:
    """One line for each stated rate, in order."""
    table = detection_table(200)
    assert tuple(line.rate for line in table) == TABLE_RATES
    probabilities = [line.probability for line in table]
    assert probabilities == sorted(probabilities)


@pytest.mark.parametrize("trials", [1, 3, 59, 200, 1000])
def test_the_bound_after_clean_trials_is_the_closed_form(trials: int) -> None:
    """1 - 0.05^(1/n): close to 3/n for many trials."""
    assert failure_rate_upper(trials, 0) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-12)


@pytest.mark.parametrize(
    ("trials", "failures", "bound"),
    # Upper ends of two-sided 90 % Clopper-Pearson intervals, from tables of the beta quantile.
    [(10, 1, 0.394163), (20, 1, 0.216106), (10, 5, 0.777559), (100, 2, 0.061619)],
)
def test_the_bound_with_failures_agrees_with_tables(
    trials: int, failures: int, bound: float
) -> None:
    """The quantile of the beta distribution, to the digits of the tables."""
    assert failure_rate_upper(trials, failures) == pytest.approx(bound, abs=2e-6)


@given(st.integers(1, 300), st.data(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_bound_solves_the_binomial_tail(
    trials: int, data: st.DataObject, confidence: float
) -> None:
    """At the bound so few failures have just the probability that is left over."""
    failures = data.draw(st.integers(0, trials - 1))
    bound = failure_rate_upper(trials, failures, confidence)
    assert failures / trials < bound < 1.0
    assert binomial_tail(failures, trials, bound) == pytest.approx(1 - confidence, rel=1e-6)


def test_only_failures_and_no_trials_exclude_nothing() -> None:
    """The bound is 1 where every trial failed, also where that is none of none."""
    assert failure_rate_upper(0, 0) == 1.0
    assert failure_rate_upper(7, 7) == 1.0


def test_a_large_run_neither_overflows_nor_takes_long() -> None:
    """A million trials: coefficients of that size fit no float."""
    assert failure_rate_upper(1_000_000, 100) == pytest.approx(1.18078e-4, rel=1e-4)


@pytest.mark.parametrize("arguments", [(3, 4), (3, -1), (-1, 0)])
def test_an_impossible_count_is_refused(arguments: tuple[int, int]) -> None:
    """More failures than trials have no bound."""
    with pytest.raises(ValueError, match="no bound"):
        failure_rate_upper(*arguments)


@given(st.floats(1e-4, 1.0), st.floats(0.0, 0.999))
def test_the_trials_needed_are_the_least(rate: float, probability: float) -> None:
    """So many show it, one fewer does not."""
    needed = trials_needed(rate, probability)
    assert detection_probability(rate, needed) >= probability
    assert needed == 0 or detection_probability(rate, needed - 1) < probability


def test_no_number_of_trials_is_certain() -> None:
    """A certain detection of a fault that is not certain is refused."""
    with pytest.raises(ValueError, match="no number of trials"):
        trials_needed(0.5, 1.0)
