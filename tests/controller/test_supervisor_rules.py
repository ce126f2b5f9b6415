"""Each rule fires where the process that made the rounds says so, and is silent elsewhere."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.config import RunConfig
from kopt_controller.memory import Memory
from kopt_controller.supervisor import rung_of, supervise
from kopt_harness.errors import NotFoundError

CHECKOUT = Path(__file__).parents[2]
SEARCH = CHECKOUT.parent / "shared" / "data" / "loongflow" / "gdn_decode"
SEEDS = 40


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The script that prints precision and recall."""
    return runpy.run_path(str(CHECKOUT / "scripts" / "supervisor_rules.py"))


def test_precision_and_recall_on_known_trajectories(script: dict[str, Any]) -> None:
    """What is missed is what noise or a threshold's neighbourhood hides."""
    for kind, score in script["scores_of"](script["synthetic"](SEEDS)).items():
        assert score.fired > 0, kind
        assert score.precision >= 0.95, kind
        assert score.recall >= (0.75 if kind == "diminishing-returns" else 0.85), kind


def test_raw_bests_would_see_what_is_not_there(script: dict[str, Any]) -> None:
    """Without intervals, equal candidates on a loud machine count as regressions."""
    loud = [t for t in script["synthetic"](SEEDS) if t.name == "even on a loud machine"]

    def regressions(strip: bool) -> int:
        count = 0
        for trajectory in loud:
            rounds = trajectory.rounds
            if strip:
                rounds = tuple(
                    past.model_copy(
                        update={
                            "ci": None,
                            "trials": tuple(t.model_copy(update={"ci": None}) for t in past.trials),
                        }
                    )
                    for past in rounds
                )
            signals = supervise(Memory(rounds=rounds)).signals
            count += any(signal.kind == "regression" for signal in signals)
        return count

    assert regressions(strip=True) > SEEDS // 10
    assert regressions(strip=False) <= SEEDS // 20


@pytest.mark.skipif(not SEARCH.is_dir(), reason="the recorded search is not here")
def test_the_recorded_search(script: dict[str, Any]) -> None:
    """No conclusion that its noise does not allow; failures of its service are none of its own."""
    trajectories = script["recorded"](SEARCH)
    assert [len(each.rounds) for each in trajectories] == [83, 3, 5]
    assert script["mistakes"](trajectories) == {}
    raw_best_moves = [past.promoted for past in trajectories[2].rounds]
    assert not any(raw_best_moves), "its best score moved twice, within the noise"


def test_actions_follow_from_signals(script: dict[str, Any]) -> None:
    """Block and go on for a cycle; widen and ask where no direction helps."""
    round_of = script["round_of"]
    won = round_of("z", 0.7)
    cycle = supervise(Memory(rounds=(won, round_of("a", 1.0), round_of("a", 1.0))))
    assert [(a.kind, a.directions, a.because) for a in cycle.actions] == [
        ("block", ("a",), "cycle")
    ]
    assert not cycle.widen
    flat = supervise(Memory(rounds=(won, *(round_of(d, 1.0) for d in "abcd"))))
    assert [a.kind for a in flat.actions] == ["widen", "ask", "recommend"]
    assert flat.actions[-1].directions == ("z",)
    assert flat.widen
    assert flat.ask_person


def test_the_ladder_is_climbed_rung_by_rung(script: dict[str, Any]) -> None:
    """One higher with each round on the plateau; down at once with a promotion."""
    round_of = script["round_of"]
    ladder = ("widen", "language:cpp", "stop")
    rounds = [round_of(d, 1.0) for d in "abcdefgh"]
    rungs = [rung_of(Memory(rounds=tuple(rounds[:n])), ladder) for n in range(3, 8)]
    assert rungs == [None, "widen", "language:cpp", "stop", "stop"]
    assert rung_of(Memory(rounds=(*rounds, round_of("i", 0.5))), ladder) is None
    assert rung_of(Memory(rounds=tuple(rounds)), ()) is None


@pytest.mark.parametrize("rung", ["jump", "agent:", "stop:now", "language:C++"])
def test_a_rung_that_does_not_exist_is_refused(rung: str) -> None:
    """When the configuration is read, not when a plateau comes."""
    with pytest.raises(ValueError, match="ladder"):
        RunConfig.model_validate({"ladder": [rung]})


def test_a_campaign_ends_on_its_last_rung(toy: Any) -> None:
    """Unattended, it does not measure for nothing for ever."""
    device = toy.device._replace(latency_us=lambda _s, _w: 10.0, noise=0.0005)
    long = toy.campaign(device, rounds=9, ladder=["widen", "stop"], max_candidates=1)
    rounds = long.execute().rounds
    assert len(rounds) < 9
    assert rounds[-1].rung == "widen"
    assert rounds[-1].signals


@pytest.mark.parametrize("rung", ["agent:nobody", "recommend:nowhere", "language:klingon"])
def test_a_rung_that_names_nothing_ends_before_the_start(toy: Any, rung: str) -> None:
    """An unattended campaign does not find out on its plateau."""
    with pytest.raises(NotFoundError, match=rung):
        toy.campaign(ladder=["widen", rung])
    assert toy.campaign(ladder=["agent:inbox", "recommend:fusion", "language:cpp"])
