"""Exactly one direction, for recorded reasons, the same each time."""

import json
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_controller.cli import main
from kopt_controller.directions import load_directions
from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.policy import get_policy
from kopt_controller.policy.match import EXPLORATION_MAX, WIDENED_MAX
from kopt_controller.result import Choice
from kopt_controller.state import Floor, Observation, State, derive_state
from kopt_controller.supervisor import Advice
from kopt_harness.schema import (
    Profile,
    ProfileDiagnosis,
    ProfiledKernel,
    ProfileEvidence,
    SolutionRef,
)

Toy = Any
NOTHING = Advice((), {}, (), ask_person=False)
POLICY = get_policy("match")
DIRECTIONS = load_directions()
KINDS = tuple(sorted(DIRECTIONS))


def _observe(regime: str, total_us: float, floor_us: float | None, launches: int) -> Observation:
    kernels = tuple(
        ProfiledKernel(name=f"k{i}", calls=1, total_us=total_us / launches, share=1 / launches)
        for i in range(launches)
    )
    profile = Profile(
        profiler="test",
        solution=SolutionRef(name="s", definition="d", sha256="00"),
        target="cpu",
        uuid=f"uuid-{regime}",
        axes={"n": 1},
        total_us=total_us,
        kernels=kernels,
        launches=launches,
    )
    return Observation(regime, 1, profile, 1000, 1000, Floor(floor_us, "memory", "test"))


def _round(direction: str, gain: float) -> RoundMemory:
    trial = {
        "name": "x",
        "sha256": f"{direction}{gain}",
        "family": None,
        "settings": {},
        "verdict": "pass",
        "passed": True,
        "ratio": 1 - gain,
    }
    return RoundMemory.model_validate(
        {
            "run": "r",
            "round": 1,
            "direction": direction,
            "bottleneck": "launch",
            "regime": "n=1",
            "incumbent": "other",
            "label": "promote" if gain > 0 else "archive",
            "code": "x",
            "ratio": 1 - gain,
            "promoted": gain > 0,
            "swept": None,
            "trials": [trial],
        }
    )


@st.composite
def _states(draw: st.DrawFn) -> State:
    observations = []
    for index in range(draw(st.integers(1, 4))):
        total = draw(st.floats(1, 1e4))
        floor = draw(st.none() | st.floats(0.01, 1).map(lambda x, total=total: x * total))
        observations.append(_observe(f"n={index}", total, floor, draw(st.integers(1, 9))))
    return derive_state(observations)


MEMORIES = st.lists(
    st.builds(_round, st.sampled_from(KINDS), st.sampled_from([0.0, 0.0, 0.05, 0.4])), max_size=12
).map(lambda rounds: Memory(rounds=tuple(rounds)))


@given(_states(), MEMORIES, st.integers(0, 2**32), st.sets(st.sampled_from(KINDS)))
def test_same_input_and_seed_same_choice(
    state: State, memory: Memory, seed: int, blocked: set[str]
) -> None:
    """Also from JSON and with the catalogue in another order; never what is blocked."""
    advice = NOTHING._replace(blocked=dict.fromkeys(blocked, "tried"))
    first = POLICY.rank(state, DIRECTIONS, memory, advice, "00", seed=seed)
    again = POLICY.rank(
        State.model_validate_json(state.model_dump_json()),
        dict(reversed(DIRECTIONS.items())),
        Memory.model_validate_json(memory.model_dump_json()),
        advice,
        "00",
        seed=seed,
    )
    assert first == again
    assert not {choice.id for choice in first} & blocked


@given(_states(), MEMORIES, st.booleans())
def test_a_score_is_the_product_of_what_is_shown(state: State, memory: Memory, widen: bool) -> None:
    """Each factor with its reason; exploration stays within its bound."""
    choices = POLICY.rank(state, DIRECTIONS, memory, NOTHING._replace(widen=widen), "00")
    for choice in choices:
        assert choice.score == pytest.approx(prod(f.value for f in choice.factors))
        assert all(factor.reason for factor in choice.factors)
        bonus = _factor(choice, "exploration")
        assert 1 <= bonus <= (WIDENED_MAX if widen else EXPLORATION_MAX)
    known = [choice.score / _factor(choice, "exploration") for choice in choices]
    bound = WIDENED_MAX if widen else EXPLORATION_MAX
    assert known[0] >= max(known) / bound * (1 - 1e-9)


def _factor(choice: Choice, name: str) -> float:
    return next(f.value for f in choice.factors if f.name == name)


def test_the_regime_with_more_to_win_decides() -> None:
    """Nine tenths of the time near its floor count for less than a tenth far above it."""
    near = _observe("big", 900.0, 890.0, 1)
    far = _observe("small", 100.0, 1.0, 9)
    choices = POLICY.rank(derive_state([near, far]), DIRECTIONS, Memory(), NOTHING, "00")
    assert (choices[0].id, choices[0].regime) == ("fusion", "small")
    traffic = next(choice for choice in choices if choice.id == "memory-traffic")
    assert traffic.regime == "big", "it fits no other"
    assert traffic.score < choices[0].score


def test_wins_elsewhere_count_half() -> None:
    """A round on the same regime and limit moves the expectation further than another."""
    state = derive_state([_observe("n=1", 100.0, None, 9)])
    here = _round("fusion", 0.0)
    there = here.model_copy(update={"regime": "n=64"})

    def gain(past: RoundMemory) -> float:
        choices = POLICY.rank(state, DIRECTIONS, Memory(rounds=(past,) * 4), NOTHING, "00")
        return _factor(next(c for c in choices if c.id == "fusion"), "gain")

    assert gain(here) == pytest.approx(0.5 / 5)
    assert gain(there) == pytest.approx(0.5 / 3)


def test_a_round_that_swept_more_than_the_direction_counts_half() -> None:
    """Lost or won, it does not say what did it; the round of the levers alone does."""
    state = derive_state([_observe("n=1", 100.0, None, 9)])

    def gain(won: float, attribution: str | None, swept: bool = True) -> float:
        past = _round("fusion", won)
        trial = past.trials[0].model_copy(update={"attribution": attribution})
        update = {"trials": (trial,), "swept": trial.sha256 if swept else None}
        rounds = (past.model_copy(update=update),) * 2
        choices = POLICY.rank(state, DIRECTIONS, Memory(rounds=rounds), NOTHING, "00")
        return _factor(next(c for c in choices if c.id == "fusion"), "gain")

    assert gain(0.0, "direction") == gain(0.0, None) == pytest.approx(0.5 / 3)
    assert gain(0.0, "joint") == pytest.approx(0.5 / 2)
    assert gain(0.4, "direction") == pytest.approx(1.3 / 3)
    assert gain(0.4, "joint") == pytest.approx(0.9 / 2)
    assert gain(0.0, "joint", swept=False) == pytest.approx(0.5 / 3)


def test_what_a_person_asks_for_comes_first() -> None:
    """Over every score, and only where it fits."""
    state = derive_state([_observe("n=1", 100.0, None, 9)])
    urged = NOTHING._replace(urged=("exploration", "hardware"))
    choices = POLICY.rank(state, DIRECTIONS, Memory(), urged, "00")
    assert choices[0].id == "exploration"
    assert "it was asked for" in choices[0].reason
    assert "hardware" not in {choice.id for choice in choices}


def test_the_seed_orders_only_equals() -> None:
    """Equal scores come in several orders, unequal ones in one."""
    state = derive_state([_observe("n=1", 100.0, 90.0, 1)])
    orders = {
        tuple(
            (c.id, round(c.score, 12))
            for c in POLICY.rank(state, DIRECTIONS, Memory(), NOTHING, "00", seed=seed)
        )
        for seed in range(8)
    }
    assert len(orders) > 1
    assert len({tuple(score for _, score in order) for order in orders}) == 1


def test_a_round_records_every_direction(toy: Toy) -> None:
    """One is chosen; each of the others says why not."""
    (result,) = toy.campaign().execute().rounds
    assert {each.id for each in result.ranking} == set(DIRECTIONS)
    standings = [each.standing for each in result.ranking]
    assert standings.count("chosen") == 1
    chosen = next(each for each in result.ranking if each.standing == "chosen")
    assert (chosen.id, chosen.score) == (result.direction.id, result.direction.score)
    for each in result.ranking:
        assert bool(each.factors) == (each.standing in ("chosen", "empty", "open"))
        assert each.reason


def test_a_direction_without_candidates_is_passed_over_visibly(toy: Toy) -> None:
    """Its turn came and nobody had anything: that is not the same as a lower score."""
    rounds = toy.campaign(rounds=3).execute().rounds
    for result in rounds:
        before = [e.standing for e in result.ranking if e.standing in ("empty", "chosen")]
        assert set(before[:-1]) <= {"empty"}
    assert any(e.standing == "empty" for result in rounds for e in result.ranking)


@pytest.fixture
def kopt(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command in the toy root."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["--root", str(toy.root.path), *arguments])
        return code, capsys.readouterr().out

    return run


def test_what_a_profile_says_is_in_the_round_and_explained(
    toy: Toy, kopt: Callable[..., tuple[int, str]]
) -> None:
    """The numbers behind it as well; a direction that it excludes is not taken for the state."""
    row = ProfileEvidence(metric="waves_per_sm", value=0.11, threshold=1.0, source="a guide")
    found = ProfileDiagnosis(
        bottleneck="underfill", limiter="a grid of 16 blocks", evidence=(row,), headroom=0.97
    )
    campaign = toy.campaign(toy.device._replace(diagnosis=found, launches=lambda _: 1))
    (result,) = campaign.execute().rounds
    assert all(each.diagnosis == "underfill" for each in result.state.regimes)
    standing = {each.id: each for each in result.ranking}
    assert standing["vectorisation"].standing == "excluded"
    assert "diagnosis is 'underfill'" in standing["vectorisation"].reason
    headroom = {f.name: f for f in standing[result.direction.id].factors}["headroom"]
    assert (headroom.value, headroom.reason) == (0.97, "97% is not used, by the profile")
    code, text = kopt("explain", campaign.run.id, "1")
    assert code == 0
    assert "Profile: underfill (a grid of 16 blocks)" in text
    assert "waves_per_sm 0.11, threshold 1 (a guide)" in text


def test_explain_prints_the_recorded_reasons(
    toy: Toy, kopt: Callable[..., tuple[int, str]]
) -> None:
    """For a person and as JSON, one round or all; a missing round is an error."""
    assert kopt("explain")[0] == 2
    campaign = toy.campaign(rounds=2)
    rounds = campaign.execute().rounds
    code, text = kopt("explain", campaign.run.id, "1")
    assert code == 0
    assert f"Chosen: {rounds[0].direction.id}" in text
    assert "exploration" in text
    document = json.loads(kopt("--json", "explain")[1])
    assert document["run"] == campaign.run.id
    recorded = [each.model_dump(mode="json") for each in rounds[1].ranking]
    assert document["rounds"][1]["ranking"] == recorded
    assert kopt("explain", campaign.run.id, "7")[0] == 2
