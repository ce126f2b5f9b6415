"""What settings are expected to do, from what others have done."""

from math import exp, log
from typing import Any

import pytest
from kopt_controller.effects import Effects, Expected, Observed, observed_of
from kopt_controller.memory import Memory, RoundMemory, Trial
from kopt_harness.schema import Verdict
from kopt_harness.tunables import Tunable

KNOBS = {
    "A": Tunable(values=(1, 2, 4, 8), default=1, directions=("tiling",)),
    "B": Tunable(values=(1, 2, 4, 8), default=1, directions=("vectorisation",)),
    "MODE": Tunable(values=("x", "y", "z"), default="x", directions=("dispatch",)),
}
HOME = {"A": 1, "B": 1, "MODE": "x"}


def _seen(ratio: float, noise: float = 0.01, **changed: Any) -> Observed:
    return Observed(HOME | changed, HOME, log(ratio), noise)


def test_changes_that_helped_are_expected_to_help_together() -> None:
    """More than the better of them alone, at most by the product, and less surely."""
    effects = Effects(KNOBS, [_seen(0.8, A=2), _seen(0.9, B=2)])
    both, one = effects.expect([HOME | {"A": 2, "B": 2}, HOME | {"A": 2}], HOME)
    assert 0.8 * 0.9 <= exp(both.log_ratio) < exp(one.log_ratio) - 0.01
    assert exp(one.log_ratio) == pytest.approx(0.8, abs=0.01)
    assert both.deviation > one.deviation


def test_a_value_beyond_a_bad_one_is_expected_to_be_bad() -> None:
    """Neighbours of a numeric knob are alike; names are not."""
    effects = Effects(KNOBS, [_seen(1.3, A=4), _seen(1.3, MODE="y")])
    beyond, other = effects.expect([HOME | {"A": 8}, HOME | {"MODE": "z"}], HOME)
    assert beyond.log_ratio > 0.08
    assert beyond.log_ratio > other.log_ratio + 0.02


def test_a_noisy_measurement_counts_for_less() -> None:
    """An interval from half to double says little."""
    sure = Effects(KNOBS, [_seen(0.7, A=2)]).expect([HOME | {"A": 2}], HOME)[0]
    unsure = Effects(KNOBS, [_seen(0.7, noise=0.5, A=2)]).expect([HOME | {"A": 2}], HOME)[0]
    assert sure.log_ratio < 0.7 * log(0.7)
    assert unsure.log_ratio > 0.7 * log(0.7)
    assert unsure.deviation > sure.deviation


def test_what_is_uncertain_may_win_more_than_what_is_known() -> None:
    """Expected improvement: nothing for what is known as no better, something for the unknown."""
    assert Expected(0.0, 0.0).improvement(0.0) == 0
    assert Expected(-0.1, 0.0).improvement(0.0) == pytest.approx(0.1)
    assert Expected(0.0, 0.1).improvement(0.0) == pytest.approx(0.0399, abs=1e-4)
    assert Expected(0.3, 0.1).improvement(0.0) < 1e-3


def test_what_is_asked_for_next_is_about_something_else() -> None:
    """As if measured: its own uncertainty goes, its expectation stays."""
    effects = Effects(KNOBS, [_seen(0.8, A=2)])
    settings = HOME | {"B": 4}
    before, after = (e.expect([settings], HOME)[0] for e in (effects, effects.also(settings, HOME)))
    assert after.log_ratio == pytest.approx(before.log_ratio, abs=1e-3)
    assert after.deviation < before.deviation / 3


def _past(incumbent: str, *trials: tuple[str, dict[str, Any], float]) -> RoundMemory:
    return RoundMemory(
        run="r",
        round=1,
        direction="tiling",
        bottleneck="memory",
        regime="n=1",
        incumbent=incumbent,
        label="archive",
        code="speed",
        ratio=None,
        promoted=False,
        swept=None,
        trials=tuple(
            Trial(
                name=sha,
                sha256=sha,
                family="f",
                settings=settings,
                verdict=Verdict.PASS,
                passed=True,
                ratio=ratio,
                ci=(ratio * 0.98, ratio * 1.02),
            )
            for sha, settings, ratio in trials
        ),
    )


def test_comparisons_are_chained_over_incumbents() -> None:
    """A candidate that became the incumbent is what the next round is compared with."""
    faster = HOME | {"A": 2}
    memory = Memory(
        rounds=(
            _past("home", ("a2", faster, 0.8)),
            _past("a2", ("a2b2", faster | {"B": 2}, 0.9), ("gone", {"A": 3, "B": 1}, 0.1)),
        )
    )
    found = list(observed_of("f", KNOBS, memory, {"home": HOME}))
    assert [(one.against, round(exp(one.log_ratio), 6)) for one in found] == [
        (HOME, 0.8),
        (faster, 0.9),
    ]
    both = Effects(KNOBS, found).expect([faster | {"B": 2}], HOME)[0]
    assert exp(both.log_ratio) == pytest.approx(0.72, abs=0.02)


def test_another_implementation_as_incumbent_still_orders_the_candidates() -> None:
    """Of each other they say the same, whatever they all had to beat."""
    trials = (("a1", HOME, 0.4), ("a2", HOME | {"A": 2}, 0.2))
    (one,) = observed_of("f", KNOBS, Memory(rounds=(_past("torch", *trials),)), {})
    assert (one.against, exp(one.log_ratio)) == (HOME, pytest.approx(0.5))
    assert list(observed_of("other", KNOBS, Memory(rounds=(_past("torch", *trials),)), {})) == []


def test_a_campaign_leaves_out_what_nothing_is_expected_of(toy: Any) -> None:
    """It ends at the best setting and has measured half of what there is; the record says where."""
    rounds = toy.campaign(rounds=8).execute().rounds
    measured = {c.name for each in rounds[:6] for c in each.candidates}
    assert rounds[5].incumbent.name == "tuned-TILE8-UNROLL4"
    assert len(measured) <= 14
    empty = {r.id for each in rounds for r in each.ranking if r.standing == "empty"}
    assert empty >= {"tiling", "vectorisation"}
