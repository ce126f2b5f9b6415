"""The ratio of means, its interval, and what it decides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.bench.noise_models import NoiseModel
from kopt_harness.bench.regressions import ERROR, Secondary, holm, regressions, secondary
from kopt_harness.bench.sequence import Rule, next_order, run_sequence
from kopt_harness.bench.stats import (
    FEW_BLOCKS_FACTOR,
    MIN_FREEDOM,
    TRIM,
    RatioInterval,
    block_levels,
    decide,
    evidence_of,
    interval_of,
    look_confidence,
    ratio_interval,
    spread,
    student_interval,
    summarise,
)
from kopt_harness.bench.student import normal_quantile, student_quantile, student_tail
from kopt_harness.schema import PairedBlock

NOISY = NoiseModel(noise=0.05)


def levels(*pairs: tuple[float, float]) -> np.ndarray:
    """Blocks by their times of A and B."""
    return np.array(pairs, dtype=float)


def of_logs(logs: list[float], level: float = 1000.0) -> np.ndarray:
    """Blocks by their log ratios."""
    return np.array([(level * math.exp(-x / 2), level * math.exp(x / 2)) for x in logs])


def block(a_ns: tuple[int, ...], b_ns: tuple[int, ...]) -> PairedBlock:
    """One block."""
    return PairedBlock(a_ns=a_ns, b_ns=b_ns)


def test_the_ratio_is_that_of_mean_latencies() -> None:
    """Not the mean of ratios: the slow workload weighs more."""
    fast, slow = [block((100,), (50,))] * 3, [block((900,), (900,))] * 3
    interval = ratio_interval([fast, slow], 0.95)
    assert interval.ratio == pytest.approx(950 / 1000)
    assert interval.lo == pytest.approx(interval.hi)


def test_a_block_is_the_mean_of_the_medians_of_its_slots() -> None:
    """A drift from slot to slot cancels, and one call that was interrupted does not count."""
    drifting = [block((100, 101, 999, 130, 131, 132), (110, 111, 112, 120, 121, 122))] * 2
    assert block_levels(drifting)[0].tolist() == [(101 + 131) / 2, (111 + 121) / 2]
    assert block_levels([block((5, 7, 90), (8,))])[0].tolist() == [7, 8]
    assert block_levels([block((10, 30), (20, 20))])[0].tolist() == [20, 20]


def test_a_claim_of_no_time_breaks_nothing() -> None:
    """Zero nanoseconds count as one; cross-checks, not arithmetic, deal with the claim."""
    assert ratio_interval([[block((0,), (100,))] * 2], 0.95).ratio == pytest.approx(100)


def test_one_block_is_not_enough() -> None:
    """A number that cannot be had is refused, not invented."""
    with pytest.raises(ValueError, match="two paired blocks"):
        ratio_interval([[block((1,), (1,))]], 0.95)
    with pytest.raises(ValueError, match="two paired blocks"):
        ratio_interval([], 0.95)


def test_student_interval_of_one_workload_is_the_textbook_one() -> None:
    """Mean of the log ratios, plus and minus t(n - 1) times s / sqrt(n)."""
    logs = [0.01, -0.02, 0.03, 0.0, -0.01]
    interval = student_interval([of_logs(logs)], 0.95)
    mean, s = np.mean(logs), np.std(logs, ddof=1)
    half = 2.776445 * s / math.sqrt(5)  # the 97.5 % quantile for 4 degrees of freedom
    assert interval.freedom == pytest.approx(4)
    assert math.log(interval.ratio) == pytest.approx(mean)
    assert math.log(interval.lo) == pytest.approx(mean - half, rel=1e-5)
    assert math.log(interval.hi) == pytest.approx(mean + half, rel=1e-5)


def test_the_interval_is_never_narrower_than_students() -> None:
    """The bootstrap may only widen it: with two blocks it knows of nothing."""
    rng = np.random.default_rng(2)
    for count in (2, 3, 5, 9, 20):
        made = NOISY.levels(rng, blocks=count, workloads=3)
        wide, least = interval_of(made, 0.98), student_interval(made, 0.98)
        assert wide.ratio == least.ratio
        assert wide.lo <= least.lo * (1 + 1e-12)
        assert wide.hi >= least.hi * (1 - 1e-12)


@pytest.mark.parametrize("logs", [[0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5], [0.0, 0.5, 0.0, 0.0]])
def test_the_bootstrap_widens_the_skewed_side(logs: list[float]) -> None:
    """Of four blocks one is far above: three draws meet it twice or more in 16 of 100 samples."""
    interval = interval_of([of_logs(logs)], 0.9)
    inflation = summarise([evidence_of(of_logs(logs))]).inflation
    quantile = student_quantile(0.95, 3) * math.sqrt(inflation)
    mean, deviation = 0.5 / 4, 0.5 / 4
    assert math.log(interval.ratio) == pytest.approx(mean)
    assert math.log(interval.lo) == pytest.approx(mean - quantile * deviation)
    beyond = (0.5 * 2 / 3 - mean) / normal_quantile(0.95)
    assert beyond > deviation
    assert math.log(interval.hi) == pytest.approx(mean + quantile * beyond)


def test_the_bootstrap_has_the_spread_of_the_mean() -> None:
    """Of many blocks its interval is Student's, on both sides: neither too wide nor unused."""
    rng = np.random.default_rng(4)
    made = [of_logs(list(rng.normal(0, 0.02, 400)))]
    wide, least = interval_of(made, 0.95), student_interval(made, 0.95)
    for a, b in ((wide.lo, least.lo), (wide.hi, least.hi)):
        assert math.log(a / wide.ratio) == pytest.approx(math.log(b / wide.ratio), rel=0.12)


def test_the_same_samples_give_the_same_interval() -> None:
    """A decision can be repeated from the archive; other samples draw otherwise."""
    made = NOISY.levels(np.random.default_rng(1), blocks=4, workloads=3)
    found = interval_of(made, 0.9)
    assert found == interval_of([each.copy() for each in made], 0.9)
    assert found.freedom == summarise([evidence_of(each) for each in made]).allowed


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(2, 12),
    st.floats(0.3, 3.0),
)
def test_exchanging_a_and_b_inverts_everything(
    seed: int, workloads: int, count: int, ratio: float
) -> None:
    """Neither solution is favoured: ratio, interval and decision are mirrored."""
    made = NOISY.levels(np.random.default_rng(seed), blocks=count, workloads=workloads, ratio=ratio)
    mirrored = [each[:, ::-1] for each in made]
    forward, backward = student_interval(made, 0.95), student_interval(mirrored, 0.95)
    assert backward.ratio == pytest.approx(1 / forward.ratio)
    assert backward.lo == pytest.approx(1 / forward.hi)
    assert backward.hi == pytest.approx(1 / forward.lo)
    names = {"faster": "slower", "slower": "faster"}
    expected = decide(forward, 0.02)
    assert decide(backward, 0.02) == names.get(expected, expected)


@given(st.integers(0, 2**32 - 1), st.floats(1e-2, 1e6))
def test_the_unit_of_time_does_not_matter(seed: int, unit: float) -> None:
    """Scaling every sample changes nothing, nor does a factor that a block shares."""
    rng = np.random.default_rng(seed)
    made = NOISY.levels(rng, blocks=6, workloads=3)
    scaled = student_interval([each * unit for each in made], 0.95)
    assert scaled[:3] == pytest.approx(student_interval(made, 0.95)[:3])
    alone = student_interval(made[:1], 0.95)
    shaken = made[0] * np.exp(rng.normal(0, 1, (6, 1)))
    assert student_interval([shaken], 0.95)[:3] == pytest.approx(alone[:3])


def test_trimming_begins_at_eight_blocks() -> None:
    """An outlier among eight moves the ratio little and the freedom down; among seven it counts."""
    quiet = [0.001 * x for x in (-3, -2, -1, 0, 1, 2, 3)]
    eight = evidence_of(of_logs([*quiet, 1.0]))
    assert eight.freedom == 8 - 1 - 2
    assert eight.log_ratio == pytest.approx(np.mean(quiet[1:]))
    seven = evidence_of(of_logs([*quiet[:6], 1.0]))
    assert seven.freedom == 6
    assert seven.log_ratio == pytest.approx(np.mean([*quiet[:6], 1.0]))
    assert evidence_of(of_logs(quiet * 2 + [0.0, 0.0])).freedom == 16 - 1 - 4


def test_the_trimmed_mean_has_the_winsorised_variance() -> None:
    """Tukey and McLaughlin: s_w^2 / ((1 - 2 g)^2 n), here with g = 1 / 8."""
    logs = [0.3, 0.1, -0.2, 0.05, 0.0, -0.1, 0.2, -0.5]
    found = evidence_of(of_logs(logs))
    kept = np.clip(logs, sorted(logs)[1], sorted(logs)[-2])
    assert found.variance == pytest.approx(kept.var(ddof=1) / (0.75**2 * 8))
    assert np.corrcoef(found.values, kept)[0, 1] == pytest.approx(1)
    twice = evidence_of(of_logs(logs * 2))
    again = np.clip(logs * 2, sorted(logs)[1], sorted(logs)[-2])
    assert twice.variance == pytest.approx(again.var(ddof=1) / (0.75**2 * 16))


def test_a_latency_is_a_median_over_blocks() -> None:
    """A block that everything slowed tenfold does not make its workload the heaviest."""
    found = evidence_of(levels((100, 100), (1000, 1000), (100, 100)))
    assert found.level_ns == pytest.approx(100)
    assert found.log_ratio == pytest.approx(0)


def test_degrees_of_freedom_follow_the_shares() -> None:
    """A heavy workload with three blocks that agree is not rescued by quiet short ones."""
    heavy = of_logs([0.1, 0.1 + 1e-9, 0.1 - 1e-9], level=1e6)
    light = [of_logs([0.02, -0.02, 0.01], level=10.0) for _ in range(20)]
    found = summarise([evidence_of(each) for each in (heavy, *light)])
    assert found.freedom == pytest.approx(2, rel=1e-3)
    alike = summarise([evidence_of(each) for each in light])
    assert alike.freedom == pytest.approx(40)
    assert sum(found.shares) == pytest.approx(1)


def test_degrees_of_freedom_follow_the_variances() -> None:
    """Of twenty equal workloads one is noisy: it alone says how well the sum is known."""
    quiet = [of_logs([1e-4, -1e-4, 0.0]) for _ in range(19)]
    found = summarise([evidence_of(each) for each in (of_logs([0.3, -0.3, 0.0]), *quiet)])
    assert found.freedom == pytest.approx(2, rel=1e-2)
    assert found.allowed == pytest.approx(40, rel=1e-2), "what is decided does not hang on it"


def test_workloads_weigh_by_their_shares_and_blocks() -> None:
    """Degrees of freedom and autocorrelation over workloads of other sizes and block counts."""
    heavy = evidence_of(of_logs([0.1, 0.02, -0.1, 0.05, 0.04, 0.03], level=300.0))
    light = evidence_of(of_logs([0.2, 0.1, -0.3], level=200.0))
    found = summarise([heavy, light])
    shares, counts = np.array(found.shares), np.array([6, 3])
    assert shares == pytest.approx([0.6, 0.4], abs=0.02)
    parts = shares**2 / counts
    by_shares = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum()
    variances = shares**2 * np.array([heavy.variance, light.variance])
    by_variances = variances.sum() ** 2 / (variances**2 / (counts - 1)).sum()
    assert found.freedom == pytest.approx(min(by_shares, by_variances))
    assert by_variances < by_shares
    assert found.allowed == pytest.approx(by_shares)
    # A heavy workload that happens to be quiet: the shares say less than the variances do.
    calm = evidence_of(of_logs([1e-4, 0.0, -1e-4], level=300.0))
    noisy = evidence_of(of_logs([0.1, -0.1, 0.05, -0.05, 0.1, -0.1, 0.0], level=30.0))
    both = summarise([calm, noisy])
    parts_2 = np.array(both.shares) ** 2 / np.array([3, 7])
    assert both.freedom == pytest.approx(parts_2.sum() ** 2 / (parts_2**2 / [2, 6]).sum())
    squares = products = 0.0
    sizes = 0.0
    for each, weight in ((heavy, parts[0]), (light, parts[1])):
        centred = each.values - each.values.mean()
        squares += weight * (centred @ centred)
        products += weight * (centred[1:] @ centred[:-1] + centred @ centred / len(centred))
        sizes += (weight * (centred @ centred)) ** 2 / len(centred)
    seen = products / squares
    r = seen + min(seen, math.sqrt(sizes) / squares)
    assert 0 < r < 0.5
    assert found.inflation == pytest.approx((1 + r) / (1 - r))


def test_blocks_that_err_alike_widen_the_interval() -> None:
    """Four high and four low say less than high and low by turns."""
    runs = summarise([evidence_of(of_logs([0.1, 0.1, 0.1, -0.1, -0.1, -0.1]))])
    turns = summarise([evidence_of(of_logs([0.1, -0.1, 0.1, -0.1, 0.1, -0.1]))])
    assert turns.inflation == 1
    # r = 3 / 6 + 1 / 6 and more, which is more than what is estimated at most
    assert runs.inflation == pytest.approx((1 + 0.5) / (1 - 0.5))


WEAK = [0.1, 0.05, 0.02, -0.1, 0.1, 0.03, -0.09, -0.04, 0.02, 0.05]
STRONG = [0.1 * math.sin(1.3 * i) + 0.05 * math.sin(i * i) for i in range(60)]


@pytest.mark.parametrize(("logs", "doubled"), [(WEAK, True), (STRONG, False)])
def test_a_correlation_is_put_higher_by_itself_or_its_error(
    logs: list[float], doubled: bool
) -> None:
    """Whichever is less, after a bias of 1 / n, over all workloads by their weight."""
    values = evidence_of(of_logs(logs)).values
    centred = values - values.mean()
    seen = (centred[1:] @ centred[:-1]) / (centred @ centred) + 1 / len(values)
    error = 1 / math.sqrt(len(values))
    assert seen > 0
    assert (seen < error) == doubled
    r = seen + (seen if doubled else error)
    assert r < 0.5
    found = summarise([evidence_of(of_logs(logs))])
    assert found.inflation == pytest.approx((1 + r) / (1 - r))
    assert found.variance == pytest.approx(found.inflation * values.var(ddof=1) / len(values))
    pair = summarise([evidence_of(of_logs(logs)), evidence_of(of_logs(logs, level=10.0))])
    assert pair.inflation <= found.inflation


def test_equal_blocks_have_no_variance_to_widen() -> None:
    """And no division by zero."""
    equal = summarise([evidence_of(of_logs([0.1] * 4))])
    assert (equal.inflation, equal.variance) == (1, pytest.approx(0))


@pytest.mark.parametrize(
    ("lo", "hi", "decision"),
    [
        (0.90, 0.97, "faster"),
        (0.90, 0.98, "ambiguous"),
        (0.90, 0.985, "ambiguous"),
        (0.985, 1.015, "same"),
        (0.98, 1 / 0.98, "same"),
        (0.979, 1.015, "ambiguous"),
        (0.985, 1.021, "ambiguous"),
        (1.03, 1.10, "slower"),
        (1.0201, 1.10, "ambiguous"),
        (1 / 0.98, 1.10, "ambiguous"),
        (1.0205, 1.10, "slower"),
        (0.97, 1.05, "ambiguous"),
    ],
)
def test_decisions_follow_the_margin(lo: float, hi: float, decision: str) -> None:
    """The whole interval must lie beyond the margin; the margin itself is within."""
    assert decide(RatioInterval((lo + hi) / 2, lo, hi), 0.02) == decision


@pytest.mark.parametrize("few", [True, False])
def test_few_blocks_decide_only_what_is_twofold(few: bool) -> None:
    """Three blocks of one workload cannot know that there are not two modes; four can."""
    freedom = MIN_FREEDOM - 0.01 if few else MIN_FREEDOM
    near, far = 1 / FEW_BLOCKS_FACTOR + 0.01, 1 / FEW_BLOCKS_FACTOR - 0.01
    open_ = "ambiguous" if few else "faster"
    assert decide(RatioInterval(near, near, near, freedom), 0.0) == open_
    assert decide(RatioInterval(far, far, far, freedom), 0.0) == "faster"
    assert decide(RatioInterval(1 / far, 1 / far, 1 / far, freedom), 0.0) == "slower"
    within = decide(RatioInterval(1.0, 1.0, 1.0, freedom), 0.02)
    assert within == ("ambiguous" if few else "same")
    assert evidence_of(of_logs([0.0] * 4)).freedom == MIN_FREEDOM


def test_a_large_difference_is_decided_by_few_noisy_blocks() -> None:
    """Thirty times slower is slower, though two blocks leave one degree of freedom."""
    noisy = [block((900, 1300), (30_000, 31_000)), block((1000, 1500), (30_500, 34_000))]
    assert decide(ratio_interval([noisy], 0.975), 0.02) == "slower"


@pytest.mark.parametrize("planned", [1, 2, 6, 11])
def test_looks_spend_the_error_once(planned: int) -> None:
    """However often one looks, and wherever it ends, the errors add up to the whole."""
    spent = [1 - look_confidence(0.95, look, planned, last=False) for look in range(1, 3000)]
    assert spent[:planned] == pytest.approx([0.4 * 0.05 / planned] * planned)
    assert spent[planned] == pytest.approx(0.1 * 0.05 / 2)
    assert sum(spent) == pytest.approx(0.5 * 0.05, rel=1e-3)
    for last in (1, 2, planned, planned + 1, planned + 2, 40):
        rest = 1 - look_confidence(0.95, last, planned, last=True, rounds=True)
        assert sum(spent[: last - 1]) + rest == pytest.approx(0.05)
        assert rest >= 0.5 * 0.05
        without = 1 - look_confidence(0.95, last, planned, last=True)
        assert without == pytest.approx(rest / 2)


@pytest.mark.parametrize("interval_by", [interval_of, student_interval])
def test_two_blocks_that_differ_wildly_leave_everything_open(interval_by) -> None:
    """A quantile of one degree of freedom times their spread is more than a float's power."""
    wild = of_logs([1.5, -1.5])
    look = Rule(2, 16, 0.99, 0.0).look([wild], 1, interval_by=interval_by)
    assert look.decision == "ambiguous"
    assert look.interval.lo < 1e-100
    assert 1e100 < look.interval.hi < math.inf
    assert math.isfinite(look.interval.hi / look.interval.lo)


def test_the_last_look_spends_what_is_left() -> None:
    """It is the one after which nothing can be measured, however many looks there were."""
    rule = Rule(3, 5, 0.99, 0.0)
    three, five = [0.1, -0.1, 0.0], [0.1, -0.1, 0.0, 0.1, -0.1]
    still_open = rule.look([of_logs(three)] * 2, 1)
    assert still_open.confidence == pytest.approx(1 - 0.01 * 0.4 / rule.planned)
    full = [of_logs(five)] * 2
    assert rule.uncertain(full) == []
    left = 0.01 * (1 - 0.4 * 2 / rule.planned)
    assert rule.look(full, 3).confidence == pytest.approx(1 - left / 2)
    rounds = rule._replace(rounds=True)
    assert rounds.look(full, 3).confidence == pytest.approx(1 - left)


def test_the_noisy_workload_has_the_larger_spread() -> None:
    """More blocks go where the variance is; a share counts with its square."""
    quiet, noisy = of_logs([0.01, -0.01, 0.0]), of_logs([0.1, -0.1, 0.0])
    shares = spread([quiet, noisy])
    assert shares[1] == pytest.approx(100 * shares[0])
    assert sum(shares) == pytest.approx(
        summarise([evidence_of(quiet), evidence_of(noisy)]).variance
    )


def test_the_rule_grows_workloads_by_half() -> None:
    """So that a comparison of many blocks is not looked at after each of them."""
    rule = Rule(3, 16, 0.99, 0.0)
    counts = [3]
    while counts[-1] < 16:
        counts.append(rule.grown(counts[-1]))
    assert counts == [3, 4, 6, 9, 13, 16]
    assert rule.planned == len(counts)
    assert rule.grown(16) == 16
    assert Rule(8, 8, 0.99, 0.0).planned == 1
    assert Rule(9, 4, 0.99, 0.0).grown(9) == 9


def test_sampling_takes_what_makes_up_the_variance_and_is_not_full() -> None:
    """The noisiest that together make four fifths; nothing where only full ones are noisy."""
    rule = Rule(3, 5, 0.99, 0.0)
    noise = [0.1, 0.001, 0.25, 0.002]
    made = [of_logs([n, -n, 0.0]) for n in noise]
    assert rule.uncertain(made) == [2]
    alike = [of_logs([0.1, -0.1, 0.0]) for _ in range(5)]
    assert len(rule.uncertain(alike)) == 4
    full = [of_logs([0.2, -0.2, 0.0, 0.2, -0.2]), *(of_logs([0.01, -0.01, 0.0]) for _ in "ab")]
    assert rule.uncertain(full) == []
    # Three blocks without any noise are still three: they are few, and get more.
    assert rule.uncertain([of_logs([0.1] * 3)]) == [0]
    # Eleven hundredths can still be lowered: another look is worth it.
    little = of_logs([0.1 * x for x in (1, -1, 0)])
    share = summarise([evidence_of(little)]).variance
    most = math.sqrt(share * 8 * 5)
    heavy = of_logs([most * x for x in (1, -1, 0, 1, -1)])
    parts = spread([heavy, little])
    assert 0.1 < parts[1] / sum(parts) < 0.13
    assert rule.uncertain([heavy, little]) == [1]
    part = [full[0], of_logs([0.1, -0.1, 0.0]), of_logs([0.001, -0.001, 0.0])]
    assert rule.uncertain(part) == [1]


def test_two_blocks_choose_nothing() -> None:
    """Who has fewer than three gets one more, however quiet by chance; not beyond the most."""
    noisy, quiet, known = of_logs([0.3, -0.3]), of_logs([0.0, 0.0]), of_logs([0.4, -0.4, 0.0])
    assert Rule(2, 5, 0.99, 0.0).uncertain([noisy, known, quiet]) == [0, 2]
    assert Rule(2, 2, 0.99, 0.0).uncertain([noisy, quiet]) == []


def test_the_first_order_is_drawn() -> None:
    """Nobody can know whose call comes first."""
    first = {next_order([]) for _ in range(64)}
    assert first == {"abba", "baab"}
    for order, other in (("abba", "baab"), ("baab", "abba")):
        block = PairedBlock(a_ns=(1,), b_ns=(1,), order=order)
        assert next_order([block]) == other
        assert {next_order([block, block]) for _ in range(64)} == first


def test_suspicious_workloads_are_those_that_may_be_slower() -> None:
    """Neither the ones that are, nor those that are not, nor those that are full."""
    rule = Rule(3, 5, 0.99, 0.02)
    maybe = of_logs([0.05, 0.06, 0.055])
    slower = of_logs([0.9, 0.901, 0.9, 0.899])
    equal = of_logs([0.01, -0.01, 0.0])
    full = of_logs([0.03, 0.05, 0.02, 0.06, 0.05])
    assert rule.suspicious([equal, maybe, slower, full]) == [1]


def test_two_blocks_that_look_slower_are_looked_into() -> None:
    """A tail from two blocks is long: what three would have shown must not stay unseen."""
    rule = Rule(2, 5, 0.99, 0.02)
    looks_slower, looks_slower_still = of_logs([0.01, 0.035]), of_logs([0.01, 0.035, 0.0225])
    looks_equal = of_logs([0.01, 0.03])
    assert rule.suspicious([looks_slower, looks_slower_still, looks_equal]) == [0]
    assert Rule(2, 2, 0.99, 0.02).suspicious([looks_slower]) == []


@pytest.mark.parametrize(("p", "looked_into"), [(0.045, True), (0.057, False)])
def test_suspicion_begins_at_one_in_twenty(p: float, looked_into: bool) -> None:
    """Without any correction: it costs blocks, and decides nothing."""
    rule = Rule(3, 5, 0.99, 0.02)
    mean = -math.log(0.98) + student_quantile(1 - p, 2) * 0.01 / math.sqrt(3)
    made = of_logs([mean + 0.01, mean - 0.01, mean])
    assert regressions([made], 0.02)[0].plain_p == pytest.approx(p)
    assert rule.suspicious([made]) == ([0] if looked_into else [])


def beside(median: float, p95: float, worst: float) -> Secondary:
    """Estimates beside a mean."""
    return Secondary(median, p95, max(p95, worst), {"small": worst, "large": 0.9})


@pytest.mark.parametrize("above", ["median", "p95", "worst"])
def test_looks_alone_bar_nothing_until_blocks_are_full(above: str) -> None:
    """A workload that looks slower and is not shown to be gets more blocks, if it bars B."""
    rule = Rule(3, 5, 0.99, 0.02)
    quick = of_logs([-0.2, -0.21, -0.19])
    looks_slower = of_logs([-0.1, 0.2, 0.05])
    slower = of_logs([0.9, 0.901, 0.9, 0.899])
    full = of_logs([-0.1, 0.2, 0.05, 0.3, -0.1])
    levels = [quick, looks_slower, slower, full]
    low = {"median": 0.9, "p95": 1.02, "worst": 1.0}
    assert rule.unsettled(levels, beside(**low)) == []
    assert rule.unsettled(levels, beside(**low | {above: 1.021})) == [1]


def test_regressions_are_called_at_five_per_cent() -> None:
    """After the correction, as the documents say."""
    for p, slower in ((0.049, True), (0.051, False)):
        mean = student_quantile(1 - p / 2, 4) * math.sqrt(0.025 / 5) * 0.1
        made = of_logs([mean + 0.1 * x for x in (0.2, -0.2, 0.1, -0.1, 0.0)])
        found = regressions([made, of_logs([-0.1, -0.2, -0.15, -0.1])], 0.0)[0]
        assert found.adjusted_p == pytest.approx(p)
        assert found.slower == slower


def test_a_sequence_stops_when_it_is_decided() -> None:
    """A clear difference takes the least number of blocks, and an open one all of them."""
    rule = Rule(3, 16, 0.99, 0.02)
    rng = np.random.default_rng(8)
    clear = NoiseModel(noise=0.01).levels(rng, blocks=16, workloads=4, ratio=0.4)
    ended = run_sequence(rule, 4, lambda w, n: clear[w][:n])
    assert ended.look.decision == "faster"
    assert ended.counts == (3, 3, 3, 3)
    assert ended.look.interval == interval_of([each[:3] for each in clear], ended.look.confidence)
    open_ = NoiseModel(noise=0.3).levels(rng, blocks=16)
    for quick in (True, False):
        ended = run_sequence(rule, 1, lambda w, n: open_[w][:n], quick=quick)
        assert ended.look.decision == "ambiguous"
        assert ended.counts == (16,)
        assert ended.look.number == rule.planned
        by = student_interval if quick else interval_of
        assert ended.look.interval == by(open_, ended.look.confidence)


def test_holm_steps_down() -> None:
    """The example of every textbook, and never below a smaller one."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02, 0.021]) == pytest.approx([0.04, 0.04])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_lies_between_no_correction_and_bonferronis(p_values: list[float]) -> None:
    """It keeps the order of the p-values."""
    adjusted = holm(p_values)
    for p, found in zip(p_values, adjusted, strict=True):
        assert p <= found <= min(1.0, p * len(p_values)) + 1e-12
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_a_regression_of_one_workload_is_found_among_many() -> None:
    """One of twenty is 10 % slower; with its neighbours it is a fiftieth of the mean."""
    rng = np.random.default_rng(3)
    made = [of_logs(list(rng.normal(0, 0.01, 6))) for _ in range(19)]
    made.insert(7, of_logs(list(rng.normal(math.log(1.1), 0.01, 6))))
    found = regressions(made, 0.02)
    assert [place for place, each in enumerate(found) if each.slower] == [7]
    assert found[7].ratio == pytest.approx(1.1, rel=0.01)
    assert found[7].adjusted_p < ERROR <= min(r.adjusted_p for r in found if not r.slower)
    assert not regressions(made, 0.2)[7].slower, "within the margin"


def test_p_values_of_regressions_are_students() -> None:
    """One-sided, at the margin's upper end 1 / (1 - margin)."""
    logs = [0.05, 0.03, 0.06, 0.04, 0.05]
    (found,) = regressions([of_logs(logs)], 0.02)
    t = (np.mean(logs) + math.log(0.98)) / (np.std(logs, ddof=1) / math.sqrt(5))
    assert found.p == found.plain_p == pytest.approx(student_tail(t, 4))
    (few,) = regressions([of_logs(logs[:3])], 0.02)
    assert few.plain_p < 0.1
    assert few.p > 0.9, "three blocks: only twofold counts"


def test_workloads_without_any_noise_have_p_values() -> None:
    """Equal blocks: slower or not, without a division by zero."""
    same, slower = of_logs([0.0] * 4), of_logs([0.25] * 4)
    assert [each.p for each in regressions([same, slower], 0.0)] == [1.0, 0.0]


def test_regressions_are_rare_where_there_are_none() -> None:
    """Of 200 sweeps of 54 equal workloads, 5 % at most name one; without Holm nearly all would."""
    rng = np.random.default_rng(12)
    named = plain = 0
    for _ in range(200):
        made = [of_logs(list(row)) for row in rng.normal(0, 0.03, (54, 5))]
        found = regressions(made, 0.0)
        named += any(each.slower for each in found)
        plain += any(each.plain_p < ERROR for each in found)
    assert named <= 0.05 * 200 + 2 * math.sqrt(0.05 * 0.95 * 200)
    assert plain > 0.8 * 200


def test_figures_beside_the_mean() -> None:
    """Median and 95th percentile over workloads, and mean latencies by regime."""
    ratios = [0.5 + 0.01 * i for i in range(20)]
    ratios[0] = 0.1
    made = [levels(*[(100, 100 * r)] * 2) for r in ratios[:-1]]
    made.append(levels(*[(1000, 1000 * ratios[-1])] * 2))
    found = secondary(made, ["small"] * 19 + ["large"], list(range(20)))
    assert found.median_ratio == pytest.approx(0.595)
    assert found.p95_ratio == pytest.approx(ratios[-1])
    assert found.worst_ratio == pytest.approx(ratios[-1])
    assert found.regimes["large"] == pytest.approx(ratios[-1])
    assert found.regimes["small"] == pytest.approx(np.mean(ratios[:-1]))
    assert (found.worst_regime, found.worst_regime_ratio) == ("large", found.regimes["large"])


def test_the_worst_of_equal_workloads_is_not_the_noise_of_one() -> None:
    """Workloads of one shape have one ratio; a shape that is slower keeps its own."""
    rng = np.random.default_rng(3)
    made = [of_logs(list(row)) for row in rng.normal(0, 0.03, (54, 3))]
    apart = secondary(made, ["all"] * 54, range(54))
    alike = secondary(made, ["all"] * 54, [n % 2 for n in range(54)])
    assert apart.p95_ratio > 1.02 > alike.p95_ratio
    assert apart.regimes == alike.regimes
    slow = [of_logs([0.1, 0.1]) for _ in range(4)]
    found = secondary(made[:50] + slow, ["all"] * 54, [0] * 50 + [1] * 4)
    assert found.p95_ratio == found.worst_ratio == pytest.approx(math.exp(0.1), rel=1e-3)
    uneven = [of_logs([log, log]) for log in (0.0, 0.0, 0.3)]
    found = secondary(uneven, ["all"] * 3, [0] * 3)
    assert found.median_ratio == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [
        # Published tables, to the digits that they give.
        (0.975, 1, 12.706),
        (0.95, 2, 2.920),
        (0.999, 2, 22.327),
        (0.995, 3, 5.841),
        (0.9995, 4, 8.610),
        (0.975, 10, 2.228),
        (0.75, 30, 0.683),
        (0.995, 120, 2.617),
    ],
)
def test_students_quantiles_are_those_of_the_tables(
    probability: float, freedom: float, quantile: float
) -> None:
    """Far out in the tails of few degrees of freedom as well."""
    found = student_quantile(probability, freedom)
    assert found == pytest.approx(quantile, abs=6e-4)
    assert student_quantile(1 - probability, freedom) == pytest.approx(-found)


def test_one_and_two_degrees_of_freedom_have_closed_forms() -> None:
    """Cauchy's distribution, and t / (2 sqrt(2 + t^2))."""
    for t in (-30.0, -1.0, 0.0, 1e-6, 0.7, 5.0, 1e4):
        assert student_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, abs=1e-12)
        assert student_tail(t, 2) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)), abs=1e-12)
    assert student_tail(math.inf, 3) == 0
    assert student_tail(-math.inf, 3) == 1


@given(st.floats(0.5, 1e9), st.floats(1e-9, 0.499))
def test_tail_and_quantile_are_inverse(freedom: float, tail: float) -> None:
    """For any number of degrees of freedom."""
    assert student_tail(student_quantile(1 - tail, freedom), freedom) == pytest.approx(
        tail, rel=1e-5
    )


def test_the_normal_distribution_is_the_limit() -> None:
    """A million degrees of freedom or infinitely many."""
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)
    assert student_quantile(0.975, 1e6) == pytest.approx(1.959964, abs=1e-5)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0, 2.0])
def test_there_is_no_quantile_outside_of_probabilities(probability: float) -> None:
    """Refused."""
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(probability, 3)
    with pytest.raises(ValueError, match="degrees of freedom"):
        student_tail(1.0, 0)


def test_nothing_lies_beyond_what_a_float_can_tell() -> None:
    """The tail of a huge value is zero, not a small number or an error."""
    assert student_tail(1e200, 3) == 0.0
    assert student_tail(-1e200, 3) == 1.0


def test_what_all_workloads_of_a_round_share_is_in_the_interval() -> None:
    """Where processes differ by 2 % an interval of rounds errs rarely, one of blocks often."""
    rng = np.random.default_rng(21)
    wrong = {True: 0, False: 0}
    for _ in range(200):
        process = rng.normal(0, 0.02, 6)
        made = [of_logs(list(process + rng.normal(0, 0.01, 6))) for _ in range(20)]
        for rounds in wrong:
            found = student_interval(made, 0.99, rounds=rounds)
            wrong[rounds] += not found.lo <= 1 <= found.hi
    assert wrong[True] <= 7
    assert wrong[False] > 60


def test_rounds_that_share_nothing_cost_little() -> None:
    """Where processes are alike the interval is that of as many blocks, with fewer freedoms."""
    rng = np.random.default_rng(22)
    made = [of_logs(list(rng.normal(0, 0.01, 16))) for _ in range(20)]
    plain = interval_of(made, 0.99)
    found = interval_of(made, 0.99, rounds=True)
    assert plain.freedom > found.freedom == 15 - 2 * (16 // TRIM)
    assert plain.hi - plain.lo <= found.hi - found.lo < 2 * (plain.hi - plain.lo)


def test_a_bootstrap_of_rounds_keeps_workloads_together() -> None:
    """Twenty workloads that move together are no better known than one."""
    logs = [0.03, -0.02, 0.01, 0.04, -0.03, 0.02]
    one = interval_of([of_logs(logs)], 0.99, rounds=True)
    many = interval_of([of_logs(logs)] * 20, 0.99, rounds=True)
    assert many.lo == pytest.approx(one.lo, rel=2e-2)
    assert many.hi == pytest.approx(one.hi, rel=2e-2)
    apart = interval_of([of_logs(logs)] * 20, 0.99)
    assert apart.hi - apart.lo < 0.5 * (many.hi - many.lo)


def test_few_rounds_of_one_workload_are_all_that_is_known() -> None:
    """What is common to all workloads was seen as often as the one with the fewest rounds."""
    heavy = of_logs([0.01 * (n % 5) for n in range(7)], level=9000.0)
    light = of_logs([0.0, 0.02, 0.01])
    assert interval_of([heavy, light], 0.99, rounds=True).freedom == 2
    assert interval_of([heavy, light], 0.99).freedom > 5


def test_rounds_of_one_workload_are_its_blocks() -> None:
    """Nothing is shared there: the same interval, also where the bootstrap is the wider one."""
    skewed = [of_logs([0.0, 0.3, 0.0, 0.0])]
    assert summarise([evidence_of(skewed[0])]).inflation == 1
    found, plain = (interval_of(skewed, 0.95, rounds=rounds) for rounds in (True, False))
    assert found == pytest.approx(plain, rel=1e-9)
    assert plain.hi > 1.001 * student_interval(skewed, 0.95).hi


def test_workloads_that_move_together_are_as_well_known_as_one() -> None:
    """The variance between rounds is that of one workload's blocks."""
    logs = [0.03, -0.02, 0.04, 0.01]
    one = summarise([evidence_of(of_logs(logs))])
    assert one.inflation == 1
    alike = [evidence_of(of_logs(logs)) for _ in range(5)]
    assert summarise(alike, rounds=True).variance == pytest.approx(one.variance)
    assert summarise(alike).variance < 0.3 * one.variance


@pytest.mark.parametrize(("share", "believed"), [(1.6, False), (1.7, True), (2.5, True)])
def test_only_a_certain_correlation_of_rounds_is_believed(share: float, believed: bool) -> None:
    """Beyond two standard errors, as it is and up to a half; their processes are their own."""
    count = 20
    turns = np.resize([1.0, -1.0], count)
    runs = np.repeat([1.0, -1.0], count // 2)
    logs = list(0.01 * (2 + turns + share * runs))
    values = evidence_of(of_logs(logs, level=1.0)).values
    centred = values - values.mean()
    seen = (centred[1:] @ centred[:-1]) / (centred @ centred) + 1 / count
    found = summarise([evidence_of(of_logs(logs))], rounds=True)
    r = min(seen, 0.5)
    assert (seen > 2 / math.sqrt(count)) == believed
    assert found.inflation == (pytest.approx((1 + r) / (1 - r)) if believed else 1)
    assert found.variance == pytest.approx(found.inflation * values.var(ddof=1) / count)


def test_rounds_that_are_all_alike_have_no_correlation() -> None:
    """However many: there is nothing to correlate."""
    assert summarise([evidence_of(of_logs([0.01] * 64))], rounds=True).inflation == 1


@pytest.mark.parametrize("quick", [False, True])
def test_the_last_look_of_a_sequence_takes_the_error_that_is_left(quick: bool) -> None:
    """An effect that it shows with that error, and not with the part of any other look."""
    rule = Rule(blocks_min=6, blocks_max=9, confidence=0.99, margin=0.0, rounds=True)
    noise = 0.01 * np.resize([1.0, -1.0, 0.5], rule.blocks_max)

    def decided(shift: float, *, last: bool) -> str:
        return rule.look([of_logs(list(noise - shift))], rule.planned, last=last).decision

    shift = next(
        each
        for each in np.linspace(0.005, 0.03, 500)
        if decided(each, last=True) == "faster" and decided(each, last=False) == "ambiguous"
    )
    rounds = of_logs(list(noise - shift))
    ended = run_sequence(rule, 1, lambda _, count: rounds[:count], quick=quick)
    assert (ended.counts, ended.look.number) == ((9,), rule.planned)
    assert ended.look.decision == "faster"


def test_a_shape_weighs_as_much_as_all_its_workloads() -> None:
    """Workloads that share their rounds are drawn once, and count as often as they are many."""
    shared, other = of_logs([0.3, 0.0, 0.0, 0.0]), of_logs([-0.1, 0.2, 0.0, 0.1], level=900.0)
    once = interval_of([shared] * 3 + [other], 0.95, rounds=True)
    each = interval_of([shared, shared.copy(), shared.copy(), other], 0.95, rounds=True)
    assert once == pytest.approx(each, rel=1e-9)
    assert once.hi > 1.001 * student_interval([shared] * 3 + [other], 0.95, rounds=True).hi
