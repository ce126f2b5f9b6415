"""Comparisons that are drawn out of recorded blocks scatter as live ones do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kopt_harness.bench.noise_models import NoiseModel
from kopt_harness.bench.resample import (
    Recording,
    detectable_effect,
    draw,
    power,
    process_spread,
    redraw,
    steadied,
)
from kopt_harness.bench.sequence import Rule
from kopt_harness.bench.stats import evidence_of, student_interval, summarise

RULE = Rule(4, 8, 0.99, 0.0)


def recordings(count: int, *, blocks: int = 16, spread: float = 0.0) -> list[Recording]:
    """Of equal solutions, whose processes differ by so much."""
    rng = np.random.default_rng(21)
    model = NoiseModel(noise=0.02)
    return [
        tuple(model.levels(rng, blocks=blocks, workloads=3, ratio=math.exp(spread * rng.normal())))
        for _ in range(count)
    ]


def log_ratio(levels: Recording) -> float:
    """Of the mean latency."""
    return summarise([evidence_of(each) for each in levels]).log_ratio


@pytest.mark.parametrize("spread", [0.0, 0.03])
def test_what_is_drawn_scatters_as_what_is_live(spread: float) -> None:
    """With the noise of blocks and the spread of processes, neither twice."""
    made = recordings(60, blocks=8, spread=spread)
    live = np.std([log_ratio(each) for each in made])
    steady = steadied(made)
    rng = np.random.default_rng(5)
    drawn = [log_ratio(draw(steady, 8, rng)) for _ in range(600)]
    assert np.std(drawn) == pytest.approx(live, rel=0.1)
    assert np.mean(drawn) == pytest.approx(0, abs=4 * live / math.sqrt(60))


def test_the_spread_between_processes_is_what_blocks_do_not_explain() -> None:
    """Zero where there is none; near 3 % where it was put in."""
    assert process_spread(recordings(60)) < 0.004
    assert process_spread(recordings(60, spread=0.03)) == pytest.approx(0.03, rel=0.3)


def test_one_recording_keeps_its_mean() -> None:
    """Nothing is known of others: a bias of its processes must be assumed to be one."""
    one = recordings(1, spread=0.5)
    (steady,) = steadied(one)
    for before, after in zip(one[0], steady, strict=True):
        logs = [np.log(each[:, 1] / each[:, 0]) for each in (before, after)]
        assert logs[1].mean() == pytest.approx(logs[0].mean())
        assert logs[1].var(ddof=0) == pytest.approx(logs[0].var(ddof=1))


def test_a_drawn_comparison_is_one_recording_with_either_name() -> None:
    """Runs of three neighbours, of one recording, with the names exchanged in half of them."""
    blocks = np.arange(1, 11, dtype=float)
    made = [(np.stack([blocks * 10**n, blocks * 10**n + 0.5], axis=1),) for n in (0, 2)]
    rng = np.random.default_rng(1)
    exchanged = set()
    for _ in range(40):
        (drawn,) = draw(made, 7, rng)
        assert drawn.shape == (7, 2)
        above = drawn[:, 1] > drawn[:, 0]
        assert above.all() or not above.any()
        exchanged.add(bool(above[0]))
        first = np.floor(drawn.min(axis=1))
        scale = 100 if first.min() >= 100 else 1
        steps = np.diff(first / scale) % 10
        assert [int(steps[i]) for i in (0, 1, 3, 4)] == [1, 1, 1, 1]
    assert exchanged == {True, False}


def test_equal_seeds_draw_equal_comparisons() -> None:
    """A calibration can be repeated from its journal."""
    steady = steadied(recordings(5))
    first = redraw(steady, RULE, 20, groups=[[0], [1, 2]], seed=3)
    assert first == redraw(steady, RULE, 20, groups=[[0], [1, 2]], seed=3)
    assert first != redraw(steady, RULE, 20, groups=[[0], [1, 2]], seed=4)
    for each in first:
        assert len(each.groups) == 2
        assert each.half_width > 0
        assert min(each.groups) <= each.log_ratio <= max(each.groups)


def test_noise_alone_decides_rarely() -> None:
    """Of 300 drawn comparisons of equal solutions at a margin of zero, 1 % on a side at most."""
    found = redraw(steadied(recordings(20)), RULE, 300)
    for decision in ("faster", "slower"):
        wrong = sum(each.ended.look.decision == decision for each in found)
        assert wrong <= 0.01 * 300 + 2 * math.sqrt(0.01 * 300)


def test_a_margin_of_the_process_spread_keeps_processes_from_deciding() -> None:
    """Processes that differ by more than the interval knows of decide often at zero, not at it."""
    made = recordings(40, spread=0.03)
    steady = steadied(made)
    at_zero = redraw(steady, RULE, 200)
    assert sum(each.ended.look.decision == "faster" for each in at_zero) > 0.05 * 200
    margin = -math.expm1(-2.58 * process_spread(made))
    at_margin = redraw(steady, RULE._replace(margin=margin), 200)
    assert sum(each.ended.look.decision == "faster" for each in at_margin) <= 0.01 * 200 + 3


def test_power_grows_with_the_effect() -> None:
    """From the error to certainty."""
    steady = steadied(recordings(10))
    found = [power(steady, RULE, effect, 60) for effect in (0.0, 0.02, 0.05, 0.3)]
    assert found == sorted(found)
    assert found[0] <= 0.05
    assert found[-1] == 1.0


def test_the_detectable_effect_is_the_least_with_the_power() -> None:
    """At it 95 of 100 are found, a fifth below fewer; a margin adds to it."""
    steady = steadied(recordings(10))
    effect = detectable_effect(steady, RULE, 60)
    assert effect is not None
    assert power(steady, RULE, effect, 60) >= 0.95
    assert power(steady, RULE, 0.8 * effect, 60) < 0.95
    wider = detectable_effect(steady, RULE._replace(margin=0.1), 60)
    assert wider is not None
    assert wider > effect + 0.08


def test_hopeless_noise_has_no_detectable_effect() -> None:
    """Twofold is the most that is tried."""
    rng = np.random.default_rng(0)
    wild = [tuple(NoiseModel(noise=0.0, skew=3.0).levels(rng, blocks=4)) for _ in range(3)]
    assert detectable_effect(wild, RULE, 20) is None
    assert student_interval(wild[0], 0.9).hi > 2


def test_drawn_rounds_are_the_same_for_every_workload() -> None:
    """A round is one recorded block of all workloads, whichever of the two is B."""
    made = recordings(5, blocks=3, spread=0.05)
    drawn = draw(made, 40, np.random.default_rng(4), rounds=True)
    known = {}
    for which, recording in enumerate(made):
        for place in range(3):
            for step in (1, -1):
                key = tuple(float(x) for levels in recording for x in levels[place][::step])
                known[key] = (which, place, step)
    found = {
        known[tuple(float(x) for levels in drawn for x in levels[place])] for place in range(40)
    }
    assert len({which for which, _, _ in found}) == 5
    assert {step for _, _, step in found} == {1, -1}


def test_rounds_keep_processes_from_deciding() -> None:
    """Processes that differ by 2 % decide no more often than their share, without any margin."""
    made = recordings(40, blocks=3, spread=0.02)
    few = Rule(6, 6, 0.99, 0.0, rounds=True)
    drawn = redraw(made, few, 300)
    assert sum(each.ended.look.decision != "ambiguous" for each in drawn) <= 9
