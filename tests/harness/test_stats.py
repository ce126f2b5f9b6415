"""The ratio of means, its interval, and what it decides."""

from __future__ import annotations

import numpy as np
import pytest
from kopt_harness.bench.stats import (
    RatioInterval,
    decide,
    look_confidence,
    ratio_interval,
    spread,
)
from kopt_harness.schema import PairedBlock


def blocks(
    rng: np.random.Generator, count: int, *, a_us: float, b_us: float, noise: float, drift: float
) -> list[PairedBlock]:
    """Paired blocks with noise of their own and a drift that both solutions share."""
    made = []
    for _ in range(count):
        level = 1 + drift * rng.standard_normal()
        a = a_us * level * (1 + noise * rng.standard_normal(2)) * 1000
        b = b_us * level * (1 + noise * rng.standard_normal(2)) * 1000
        made.append(PairedBlock(a_ns=tuple(map(int, a)), b_ns=tuple(map(int, b))))
    return made


def test_the_ratio_is_that_of_mean_latencies() -> None:
    """Not the mean of ratios: the slow workload weighs more."""
    fast = [PairedBlock(a_ns=(100,), b_ns=(50,))] * 3
    slow = [PairedBlock(a_ns=(900,), b_ns=(900,))] * 3
    interval = ratio_interval([fast, slow], 0.95)
    assert interval.ratio == pytest.approx(950 / 1000)
    assert interval.lo == pytest.approx(interval.hi)


def test_the_same_samples_give_the_same_interval() -> None:
    """A decision can be repeated from the archive."""
    made = [blocks(np.random.default_rng(1), 4, a_us=10, b_us=9, noise=0.02, drift=0.1)] * 3
    assert ratio_interval(made, 0.9) == ratio_interval(made, 0.9)


def test_coverage_is_close_to_nominal_under_shared_drift() -> None:
    """Of 400 simulated comparisons the 90 % interval holds the true ratio in 82 % or more."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        made = [
            blocks(rng, 4, a_us=size, b_us=size * 0.97, noise=0.02, drift=0.1)
            for size in (3, 10, 20, 40)
        ]
        interval = ratio_interval(made, 0.9)
        hits += interval.lo <= 0.97 <= interval.hi
    assert hits >= 0.82 * 400


def test_a_solution_is_not_faster_than_itself() -> None:
    """Of 300 comparisons of equal solutions at 95 %, at most 4 % say faster."""
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(300):
        made = [blocks(rng, 4, a_us=s, b_us=s, noise=0.03, drift=0.1) for s in (3, 10, 20)]
        wrong += decide(ratio_interval(made, 0.95), 0.0) == "faster"
    assert wrong <= 0.04 * 300


@pytest.mark.parametrize(
    ("lo", "hi", "decision"),
    [
        (0.90, 0.97, "faster"),
        (0.90, 0.985, "ambiguous"),
        (0.985, 1.015, "same"),
        (1.03, 1.10, "slower"),
        (0.97, 1.05, "ambiguous"),
    ],
)
def test_decisions_follow_the_margin(lo: float, hi: float, decision: str) -> None:
    """The whole interval must lie beyond the margin."""
    assert decide(RatioInterval((lo + hi) / 2, lo, hi), 0.02) == decision


def test_looks_spend_the_error_once() -> None:
    """However often one looks, the errors add up to no more than the whole."""
    spent = sum(1 - look_confidence(0.95, look) for look in range(1, 2000))
    assert spent == pytest.approx(0.05, rel=1e-2)
    assert spent < 0.05


def test_the_noisy_workload_has_the_larger_spread() -> None:
    """More blocks go where the variance is."""
    rng = np.random.default_rng(3)
    quiet = blocks(rng, 5, a_us=10, b_us=10, noise=0.001, drift=0.1)
    noisy = blocks(rng, 5, a_us=10, b_us=10, noise=0.1, drift=0.1)
    shares = spread([quiet, noisy], 1.0)
    assert shares[1] > 10 * shares[0]


def test_a_claim_of_no_time_breaks_nothing() -> None:
    """Zero nanoseconds count as one; cross-checks, not arithmetic, deal with the claim."""
    interval = ratio_interval([[PairedBlock(a_ns=(0,), b_ns=(100,))] * 2], 0.95)
    assert interval.ratio == 100


def test_one_block_is_not_enough() -> None:
    """A number that cannot be had is refused, not invented."""
    with pytest.raises(ValueError, match="two paired blocks"):
        ratio_interval([[PairedBlock(a_ns=(1,), b_ns=(1,))]], 0.95)


def test_a_large_difference_is_decided_by_few_noisy_blocks() -> None:
    """Thirty times slower is slower, though two blocks leave one degree of freedom."""
    noisy = [PairedBlock(a_ns=(900, 1300), b_ns=(30_000, 31_000))]
    noisy.append(PairedBlock(a_ns=(1000, 1500), b_ns=(30_500, 34_000)))
    assert decide(ratio_interval([noisy], 0.975), 0.02) == "slower"
