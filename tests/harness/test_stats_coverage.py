"""Coverage and false decisions on simulated samples; ``scripts/coverage_stats.py`` runs more.

Bounds are the nominal error plus two standard deviations of so many trials: a seed is fixed,
and a change that lowers the coverage by a point or two fails.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from kopt_harness.bench.noise_models import MODELS, NoiseModel
from kopt_harness.bench.sequence import Rule, run_sequence
from kopt_harness.bench.stats import Levels, decide, student_interval

UNCONTROLLED = "autocorrelation 0.6"
"""Not to be seen in a dozen blocks: stated in the documents, not promised."""
TRIALS = 150


def bound(error: float, trials: int) -> float:
    """Most failures that are compatible with an error."""
    return error * trials + 2 * math.sqrt(error * (1 - error) * trials)


def trials(
    model: NoiseModel, *, blocks: int, workloads: int, ratio: float = 1.0, count: int = TRIALS
) -> list[list[Levels]]:
    """Simulated comparisons."""
    rng = np.random.default_rng(11)
    return [
        model.levels(rng, blocks=blocks, workloads=workloads, ratio=ratio) for _ in range(count)
    ]


@pytest.mark.parametrize("name", [name for name in MODELS if name != UNCONTROLLED])
@pytest.mark.parametrize(("blocks", "workloads"), [(2, 1), (3, 4), (5, 1), (10, 2), (3, 20)])
def test_intervals_cover(name: str, blocks: int, workloads: int) -> None:
    """A ratio of 0.9 is in nine of ten intervals at 90 %, whatever the noise."""
    made = trials(MODELS[name], blocks=blocks, workloads=workloads, ratio=0.9)
    found = [student_interval(each, 0.9) for each in made]
    missed = sum(not each.lo <= 0.9 <= each.hi for each in found)
    # Modes have two values: with two blocks they agree by chance more often than an error of 10 %.
    modes = 1 / 4 if blocks == 2 and "modes" in name else 0.1
    allowed = 0.13 if name == "autocorrelation 0.3" else modes
    assert missed <= bound(allowed, len(made))


@pytest.mark.parametrize("name", [name for name in MODELS if name != UNCONTROLLED])
@pytest.mark.parametrize("workloads", [1, 4, 16])
def test_equal_solutions_are_not_told_apart(name: str, workloads: int) -> None:
    """All looks of a comparison at a margin of zero: 1 % on either side at most."""
    rule = Rule(3 if workloads < 16 else 2, 9, 0.99, 0.0)
    found = [
        run_sequence(rule, workloads, lambda w, n, made=made: made[w][:n], quick=True)
        for made in trials(MODELS[name], blocks=9, workloads=workloads)
    ]
    for decision in ("faster", "slower"):
        wrong = sum(each.look.decision == decision for each in found)
        assert wrong <= bound(0.01, len(found))


def test_a_fixed_order_would_call_a_slow_first_slot_a_slow_solution() -> None:
    """Why blocks have both orders: whoever is in the first slot of all blocks loses."""
    slots = np.ones((8, 4)) + 1e-4 * np.random.default_rng(0).standard_normal((8, 4))
    slots[:, 0] *= 1.1
    outer, inner = slots[:, ::3].mean(axis=1), slots[:, 1:3].mean(axis=1)
    fixed = np.stack([outer, inner], axis=1)
    swapped = np.arange(8) % 2 == 1
    balanced = np.where(swapped[:, None], fixed[:, ::-1], fixed)
    assert decide(student_interval([fixed], 0.99), 0.0) == "faster"
    interval = student_interval([balanced], 0.99)
    assert interval.lo < 1 < interval.hi
    assert interval.ratio == pytest.approx(1, abs=1e-3)


def test_shared_drift_does_not_widen_the_interval() -> None:
    """A clock that steps by half between blocks is in both solutions."""

    def half_width(model: NoiseModel) -> float:
        widths = [
            math.log(each.hi / each.lo)
            for each in (student_interval(m, 0.9) for m in trials(model, blocks=5, workloads=3))
        ]
        return float(np.median(widths))

    assert half_width(NoiseModel(shared_step=0.5)) < 1.1 * half_width(NoiseModel())
    assert half_width(NoiseModel(block_modes=0.5)) > 5 * half_width(NoiseModel())


def test_an_effect_is_found() -> None:
    """5 % slower under 2 % noise of a call: in 95 of 100 comparisons of up to 16 blocks."""
    rule = Rule(3, 16, 0.99, 0.0)
    made = trials(NoiseModel(noise=0.02), blocks=16, workloads=4, ratio=1.05, count=100)
    found = [run_sequence(rule, 4, lambda w, n, m=m: m[w][:n], quick=True) for m in made]
    assert sum(each.look.decision == "slower" for each in found) >= 95
