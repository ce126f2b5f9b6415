"""What a ``kopt promote`` leaves: in status, history, and in what the supervisor counts."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.config import RunConfig
from kopt_controller.history import PromotionView, find_run, list_promotions
from kopt_controller.indexed import open_index
from kopt_controller.kinds import PROMOTE_KEY
from kopt_controller.memory import gather
from kopt_controller.result import PromoteOutcome
from kopt_controller.reverify import find_promotable, reverify
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.supervisor import supervise
from kopt_harness.archive import Archive
from kopt_harness.errors import InfraError, NotFoundError
from kopt_harness.journal import read_journal

Toy = Any
Kopt = Callable[..., Any]


@pytest.fixture
def kopt(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Kopt:
    """Runs a command in the toy root; its document, or with ``text`` what a person sees."""

    def run(*arguments: str, text: bool = False) -> Any:
        flags = [] if text else ["--json"]
        assert main(["--root", str(toy.root.path), *flags, *arguments]) == 0
        output = capsys.readouterr().out
        return output if text else json.loads(output)

    return run


def _promote(
    toy: Toy, what: str | None = None, harness: SimulatedHarness | None = None
) -> PromoteOutcome:
    return reverify(
        toy.catalog,
        find_promotable(toy.catalog, Archive(toy.root.local), what, "cpu"),
        RunConfig(),
        lambda target, _: harness or SimulatedHarness(target.name, toy.device),
        notify=lambda _: None,
    )


def test_status_no_longer_waits_and_names_the_incumbent(toy: Toy, kopt: Kopt) -> None:
    """Something waits for a person before, and afterwards it says who promoted what."""
    campaign = toy.campaign(promotion="ask")
    campaign.execute()
    before = kopt("status")
    assert before["promotable"] == f"{campaign.run.id}/1"
    assert before["retained"]["name"] == "plain"
    assert before["promotions"] == []
    done = _promote(toy)
    after = kopt("status")
    assert after["run"] == campaign.run.id
    assert after["promotable"] is None
    assert after["retained"] == done.candidate.model_dump()
    (promotion,) = after["promotions"]
    assert (promotion["run"], promotion["applied"]) == (done.run, True)
    assert promotion["by"]
    text = kopt("status", text=True)
    assert "Waits for a person" not in text
    assert f"Incumbent now: {done.candidate.name}" in text
    with pytest.raises(NotFoundError, match="no round waits"):
        _promote(toy)


def test_history_lists_promotions_with_who_what_and_when(toy: Toy, kopt: Kopt) -> None:
    """Applied or refused, beside the rounds; the round that found it says so."""
    toy.campaign(promotion="ask").execute()
    equal = SimulatedHarness("cpu", SimulatedDevice(latency_us=lambda *_: 10.0, noise=0.001))
    refused = _promote(toy, harness=equal)
    done = _promote(toy)
    document = kopt("history")
    assert [p["run"] for p in document["promotions"]] == [refused.run, done.run]
    assert [p["applied"] for p in document["promotions"]] == [False, True]
    for promotion in document["promotions"]:
        assert promotion["candidate"]["name"] == done.candidate.name
        assert promotion["incumbent"]["name"] == "plain"
        assert promotion["created"]
        assert promotion["conditions"]
    (round_,) = document["runs"][0]["rounds"]
    assert (round_["applied"], round_["promoted_by"]) == (True, done.run)
    assert kopt("history", "--target", "b200")["promotions"] == []
    text = kopt("history", text=True)
    assert "refused: speed" in " ".join(text.split())


def test_the_index_says_what_the_journals_say(toy: Toy, kopt: Kopt) -> None:
    """History asks the index, status reads the journal; after reindex it is the same again."""
    campaigns = [toy.campaign(promotion="ask", rounds=2) for _ in range(3)]
    for campaign in campaigns:
        campaign.execute()
    _promote(toy)
    history = kopt("history", "--last", "0")
    assert history["runs_in_all"] == len(history["runs"]) == 3
    for campaign, shown in zip(campaigns, history["runs"], strict=True):
        status = kopt("status", campaign.run.id)
        del status["retained"]
        assert (status.pop("pending_steers"), status.pop("problems")) == ([], [])
        assert status.pop("limit") is None
        assert {"schema": 1, **shown} == status
    (promotion,) = history["promotions"]
    status = kopt("status", promotion["run"])
    del status["retained"]
    assert status.pop("problems") == []
    assert {"schema": 1, **promotion} == status
    last = kopt("history", "--last", "1")
    assert (last["runs"], last["runs_in_all"]) == (history["runs"][2:], 3)
    counts = kopt("reindex")
    assert (counts["runs"], counts["problems"]) == (4, [])
    assert kopt("history", "--last", "0") == history


def test_a_promotion_is_shown_by_its_own_id(toy: Toy, kopt: Kopt) -> None:
    """With its conditions, as kopt promote has printed them."""
    toy.campaign(promotion="ask").execute()
    done = _promote(toy)
    document = kopt("status", done.run)
    assert (document["kind"], document["state"]) == ("promote", "finished")
    assert document["conditions"] == [c.model_dump() for c in done.conditions]
    text = kopt("status", done.run, text=True)
    assert "Promoted:" in text
    assert "worst-regime" in text


def test_a_promotion_that_broke_off_is_said_to_have(toy: Toy, kopt: Kopt) -> None:
    """No outcome, no claim; the next one begins anew."""

    class Broken(SimulatedHarness):
        def validate(self, *_: Any) -> Any:
            raise InfraError("the driver is gone", hint="restart the machine")

    toy.campaign(promotion="ask").execute()
    with pytest.raises(InfraError, match="the driver is gone"):
        _promote(toy, harness=Broken("cpu", toy.device))
    with open_index(toy.root.local) as index:
        (view,) = list_promotions(index)
    assert (view.state, view.applied, view.outcome) == ("interrupted", False, None)
    assert "kopt promote" in kopt("status", view.run.id, text=True)
    assert kopt("history")["promotions"][0]["state"] == "interrupted"
    assert _promote(toy).applied


def test_a_promoted_round_is_no_plateau(toy: Toy) -> None:
    """What a person has promoted counts as the move of the incumbent that it is."""
    device = toy.device._replace(flags={"tuned": "library-call"})
    toy.campaign(device, rounds=1, max_candidates=1).execute()
    archive = Archive(toy.root.local)
    before = gather(archive, "toy_op_n", "cpu")
    assert [past.label for past in before.since_promotion()] == ["archive"]
    assert before.rounds[0].gain == 0
    (swept,) = [past.swept for past in before.rounds]
    assert _promote(toy, swept).applied
    after = gather(archive, "toy_op_n", "cpu")
    assert after.since_promotion() == ()
    assert after.rounds[0].promoted
    assert after.rounds[0].gain > 0.5
    assert supervise(after).recommended == (after.rounds[0].direction,)
    assert gather(archive, "toy_op_n", "b200").moves == ()


def test_rounds_before_a_later_promotion_do_not_count(toy: Toy) -> None:
    """The incumbent moves when the command does it, not when its candidate was found."""
    toy.campaign(promotion="ask", rounds=3).execute()
    archive = Archive(toy.root.local)
    first = find_run(archive, None)
    assert first is not None
    assert not isinstance(first, PromotionView)
    best = first.rounds[0].best
    assert best is not None
    assert _promote(toy, best.sha256).applied
    memory = gather(archive, "toy_op_n", "cpu")
    assert len(memory.rounds) == 3
    assert memory.since_promotion() == ()
    # The next campaign starts from a snapshot of this, and from the new incumbent.
    campaign = toy.campaign(promotion="ask")
    assert campaign.manifest.memory == memory
    assert campaign.manifest.incumbent.sha256 == best.sha256


def test_the_outcome_is_the_last_record(toy: Toy) -> None:
    """The journal has sweep, validation and what came of them."""
    toy.campaign(promotion="ask").execute()
    done = _promote(toy)
    run = Archive(toy.root.local).run(done.run)
    keys = [record.key for record in read_journal(run.journal_path)]
    assert keys[-1] == PROMOTE_KEY
    outcomes = [key.split("/")[0] for key in keys if key.endswith("/outcome")]
    assert outcomes == ["sweep", "validation"]
