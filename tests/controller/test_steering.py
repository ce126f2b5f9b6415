"""What a person says reaches the next round, the record, and the agent."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.campaign import open_campaign
from kopt_controller.cli import main
from kopt_controller.simulated import SimulatedHarness
from kopt_controller.steering import STEER_FILE, Steer, append_steers, fold, read_steers
from kopt_controller.supervisor import Advice, steered
from kopt_harness.errors import InterruptedRunError, InvalidInputError

Toy = Any
Kopt = Callable[..., tuple[int, Any]]


@pytest.fixture
def kopt(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Kopt:
    """Runs a command in the toy root; returns the exit code and the JSON document."""

    def run(*arguments: str) -> tuple[int, Any]:
        code = main(["--root", str(toy.root.path), "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def _say(*said: tuple[str, str]) -> tuple[Steer, ...]:
    return tuple(Steer.model_validate({"kind": kind, "value": value}) for kind, value in said)


def test_the_last_word_counts() -> None:
    """Block and recommend undo each other; texts add up."""
    steering = fold(
        _say(
            ("block", "fusion"),
            ("recommend", "tiling"),
            ("recommend", "fusion"),
            ("block", "tiling"),
            ("note", "one"),
            ("note", "two"),
            ("language", "cpp"),
            ("language", "cuda"),
            ("budget", "30"),
        )
    )
    assert set(steering.blocked) == {"tiling"}
    assert steering.urged == ("fusion",)
    assert steering.notes == ("one", "two")
    assert (steering.language, steering.budget_s) == ("cuda", 30.0)


def test_a_person_is_above_the_supervisor() -> None:
    """What it blocked can be recommended, what it recommends can be blocked."""
    advice = Advice((), {"fusion": "a cycle"}, ("tiling",), ask_person=True)
    found = steered(advice, fold(_say(("recommend", "fusion"), ("block", "tiling"))))
    assert (set(found.blocked), found.urged) == ({"tiling"}, ("fusion",))
    assert steered(advice, fold(()), "unblock").blocked == {}
    assert steered(advice, fold(()), "recommend:fusion").urged == ("fusion",)
    assert steered(advice, fold(()), "widen").widen
    assert set(steered(advice, fold(()), "stop").blocked) == {"fusion"}


def test_a_run_follows_what_was_said_before_it_began(toy: Toy, kopt: Kopt) -> None:
    """Blocked and recommended directions, in the ranking and in the record of the round."""
    campaign = toy.campaign()
    assert kopt("steer", "--block", "fusion", "--recommend", "exploration")[0] == 0
    (result,) = campaign.execute().rounds
    assert result.direction.id == "exploration"
    standing = {each.id: each for each in result.ranking}
    assert standing["fusion"].standing == "blocked"
    assert "blocked by" in standing["fusion"].reason
    assert [steer.kind for steer in result.steers] == ["block", "recommend"]
    assert kopt("steer", "--note", "late")[0] == 2, "a finished run cannot be steered"
    assert [each["value"] for each in kopt("steer")[1]["steers"]] == ["fusion", "exploration"]


class _Saying:
    """A harness during whose first gate a person says something."""

    def __init__(self, inner: Any, path: Any, steers: tuple[Steer, ...]) -> None:
        self._inner, self._path, self._steers = inner, path, steers

    def gate(self, *arguments: Any) -> Any:
        steers, self._steers = self._steers, ()
        if steers:
            append_steers(self._path, steers)
        return self._inner.gate(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _steered(toy: Toy, *said: tuple[str, str], rounds: int = 3, **config: Any) -> Any:
    campaign = toy.campaign(rounds=rounds, **config)
    path = campaign.run.folder / STEER_FILE

    def make(target: Any, _: Any) -> Any:
        return _Saying(SimulatedHarness(target.name, toy.device), path, _say(*said))

    return campaign._replace(make_harness=make)


def test_a_stop_lets_the_round_end(toy: Toy) -> None:
    """The round under way is closed as if nothing had been said."""
    rounds = _steered(toy, ("stop", "a person")).execute().rounds
    assert len(rounds) == 1
    assert rounds[0].steers == ()
    assert rounds[0].decision.label == "promote"


def test_a_budget_of_nothing_ends_after_the_round(toy: Toy) -> None:
    """A person's budget is above the configured one."""
    assert len(_steered(toy, ("budget", "0.0001"), budget_s=1e6).execute().rounds) == 1


def test_a_switched_agent_keeps_its_own_caution(toy: Toy) -> None:
    """The inbox asks before it promotes, also in a run that began with knobs."""
    folder = toy.root.local / "inbox" / "toy_op_n" / "mine"
    (folder / "solution" / "python").mkdir(parents=True)
    source = "def run(x, y):\n    y[:] = 1 + x\n"
    (folder / "solution" / "python" / "kernel.py").write_text(source)
    config = (toy.root.kernels / "toy_op_n/solutions/plain/config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("plain", "tuned-mine"))
    first, second = _steered(toy, ("agent", "inbox"), rounds=2).execute().rounds
    assert first.promotion is not None
    assert first.promotion.applied
    assert [candidate.name for candidate in second.candidates] == ["tuned-mine"]
    assert second.promotion is None or not second.promotion.applied


def test_a_language_leaves_no_other(toy: Toy) -> None:
    """All solutions here are Python: with another language nobody has anything."""
    first, second = _steered(toy, ("language", "cuda"), rounds=2).execute().rounds
    assert first.candidates
    assert second.candidates == ()
    standing = {each.id: each for each in second.ranking}
    assert standing["hardware"].reason == "not for cpu"
    rounds = _steered(toy, ("language", "triton"), rounds=2).execute().rounds
    assert all("triton" not in c.language for c in rounds[1].candidates)


@pytest.mark.parametrize(
    ("flag", "label"), [("library-call", "promote"), ("timer-disagrees", "archive")]
)
def test_an_accepted_flag_bars_no_promotion(toy: Toy, kopt: Kopt, flag: str, label: str) -> None:
    """By its code; another one still bars, and the retained evidence names it."""
    device = toy.device._replace(flags={"tuned": "library-call"})
    campaign = toy.campaign(device, max_candidates=1)
    kopt("steer", "--accept-flag", flag)
    (result,) = campaign.execute().rounds
    assert result.decision.label == label
    summary = toy.root.retained / "toy_op_n" / "cpu"
    written = "".join(path.read_text() for path in summary.glob("*.json"))
    assert ("library-call" in written) == (label == "promote")


def test_a_resumed_run_is_steered_in_the_same_rounds(toy: Toy) -> None:
    """What was said later does not reach back into rounds that began before."""
    campaign = toy.campaign(rounds=2)
    stopped = []

    def make(target: Any, _: Any) -> Any:
        harness = SimulatedHarness(target.name, toy.device)

        class Stopping:
            def gate(self, *arguments: Any) -> Any:
                if not stopped:
                    stopped.append(True)
                    raise KeyboardInterrupt
                return harness.gate(*arguments)

            def __getattr__(self, name: str) -> Any:
                return getattr(harness, name)

        return Stopping()

    with pytest.raises(InterruptedRunError):
        campaign._replace(make_harness=make).execute()
    append_steers(campaign.run.folder / STEER_FILE, _say(("block", "tiling"), ("note", "hm")))
    again = open_campaign(
        toy.root,
        campaign.run.id,
        lambda target, _: SimulatedHarness(target.name, toy.device),
        lambda _: None,
    )
    first, second = again.execute().rounds
    assert first.steers == ()
    assert [steer.value for steer in second.steers] == ["tiling", "hm"]
    assert all(each.standing != "blocked" for each in first.ranking)
    assert {each.id for each in second.ranking if each.standing == "blocked"} == {"tiling"}


@pytest.mark.parametrize(
    "arguments",
    [("--block", "nowhere"), ("--agent", "nobody"), ("--language", "klingon"), ("--budget", "-1")],
)
def test_what_no_round_could_follow_is_refused_at_once(
    toy: Toy, kopt: Kopt, arguments: tuple[str, ...]
) -> None:
    """Before anything is written."""
    assert kopt("steer", *arguments)[0] == 2
    campaign = toy.campaign()
    assert kopt("steer", *arguments)[0] == 2
    assert read_steers(campaign.run.folder / STEER_FILE) == ()


def test_a_damaged_steer_is_named(tmp_path: Any) -> None:
    """A half-written last line is no damage."""
    path = tmp_path / STEER_FILE
    append_steers(path, _say(("note", "a")))
    path.write_text(path.read_text() + '{"kind": "no')
    assert len(read_steers(path)) == 1
    path.write_text('{"kind": "boredom", "value": ""}\n')
    with pytest.raises(InvalidInputError, match="no steer"):
        read_steers(path)
