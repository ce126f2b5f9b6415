"""A closed round can be run again from what was recorded of it."""

import json
from typing import Any

import pytest
from kopt_controller.campaign import open_campaign
from kopt_controller.cli import main
from kopt_controller.documents.loop import RerunDocument, RunCost
from kopt_controller.rerun import comparison_of, start_rerun
from kopt_controller.simulated import SimulatedHarness
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_harness.errors import NotFoundError
from kopt_harness.journal import read_journal

Toy = Any


def _again(toy: Toy, run: str, number: str, device: Any = None) -> Any:
    chosen = device or toy.device
    return start_rerun(
        toy.root, run, number, lambda t, _: SimulatedHarness(t.name, chosen), lambda _: None
    )


def test_the_same_round_comes_out_again(toy: Toy) -> None:
    """Direction, ranking, candidates and decision, though memory and incumbent have moved on."""
    campaign = toy.campaign(rounds=3)
    rounds = campaign.execute().rounds
    for before in rounds:
        again = _again(toy, campaign.run.id, str(before.round))
        assert again.changed == ()
        (after,) = again.campaign.execute().rounds
        assert after.round == before.round
        assert after.ranking == before.ranking
        assert [c.sha256 for c in after.candidates] == [c.sha256 for c in before.candidates]
        same = comparison_of(before, after)
        assert all(same[name] for name in ("direction", "candidates", "best", "decision"))


def test_what_has_changed_since_is_named(toy: Toy) -> None:
    """Solutions and the definition are hashed in the manifest; the incumbent is no part of them."""
    campaign = toy.campaign()
    campaign.execute()
    recorded = campaign.manifest.versions
    assert {"kopt", "python", "numpy", "directions", "definition", "solutions"} <= set(recorded)
    folder = toy.root.kernels / "toy_op_n"
    assert _again(toy, campaign.run.id, "1").changed == (), "the promotion has moved the pointer"
    config = folder / "solutions" / "tuned" / "config.toml"
    config.write_text(config.read_text() + "# another\n")
    (changed,) = _again(toy, campaign.run.id, "1").changed
    assert changed.startswith(f"solutions: {recorded['solutions']}, now ")
    costs = folder / "cost.py"
    costs.write_text(costs.read_text() + "# another\n")
    names = [text.partition(":")[0] for text in _again(toy, campaign.run.id, "1").changed]
    assert names == ["definition", "solutions"]


def test_it_is_measured_anew(toy: Toy) -> None:
    """On a device where nothing is faster any more, the decision is another one."""
    campaign = toy.campaign()
    (before,) = campaign.execute().rounds
    even = toy.device._replace(latency_us=lambda _s, _w: 10.0, noise=0.0005)
    again = _again(toy, campaign.run.id, "1", even)
    (after,) = again.campaign.execute().rounds
    assert before.decision.label == "promote"
    assert after.decision.label == "archive"
    assert not comparison_of(before, after)["decision"]
    keys = {record.key for record in read_journal(again.campaign.run.journal_path)}
    assert "r1/proposals/fusion" in keys


def test_it_never_promotes_by_itself(toy: Toy) -> None:
    """The old run did; its incumbent is not today's."""
    campaign = toy.campaign(promotion="auto")
    campaign.execute()
    pointer = (toy.root.kernels / "toy_op_n" / "retained.toml").read_text()
    (after,) = _again(toy, campaign.run.id, "1").campaign.execute().rounds
    assert after.promotion is not None
    assert (after.promotion.mode, after.promotion.applied) == ("ask", False)
    assert (toy.root.kernels / "toy_op_n" / "retained.toml").read_text() == pointer


def test_what_people_said_then_holds_again(toy: Toy) -> None:
    """And what the new run is told does not change the old one."""
    campaign = toy.campaign()
    said = Steer.model_validate({"kind": "block", "value": "fusion"})
    append_steers(campaign.run.folder / STEER_FILE, [said])
    (before,) = campaign.execute().rounds
    assert before.direction.id != "fusion"
    (after,) = _again(toy, campaign.run.id, "1").campaign.execute().rounds
    assert after.steers == before.steers
    assert after.direction.id == before.direction.id


def test_it_is_resumed_like_any_run(toy: Toy) -> None:
    """From its manifest alone, under its own round number."""
    campaign = toy.campaign(rounds=2)
    campaign.execute()
    again = _again(toy, campaign.run.id, "2").campaign
    first = again.execute().document()
    resumed = open_campaign(
        toy.root, again.run.id, lambda t, _: SimulatedHarness(t.name, toy.device), lambda _: None
    )
    assert resumed.manifest.rerun_of == f"{campaign.run.id}/2"
    assert resumed.execute().document() == first
    assert first["rounds"][0]["round"] == 2


def test_what_has_changed_is_named(toy: Toy) -> None:
    """Another catalogue is another choice; the run says so instead of hiding it."""
    campaign = toy.campaign()
    campaign.execute()
    path = campaign.run.manifest_path
    manifest = json.loads(path.read_text())
    manifest["versions"]["kopt"] = "0.0.1"
    path.write_text(json.dumps(manifest))
    (change,) = _again(toy, campaign.run.id, "1").changed
    assert change.startswith("kopt: 0.0.1, now ")


def test_its_document_says_what_it_has_cost(
    toy: Toy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a round: the whole run, and the one round of it."""
    campaign = toy.campaign()
    campaign.execute()
    monkeypatch.setattr(
        "kopt_controller.cli.rerun.harness_maker",
        lambda *_: lambda target, _: SimulatedHarness(target.name, toy.device),
    )
    command = ["--root", str(toy.root.path), "rerun", campaign.run.id, "1"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    document.pop("schema")
    found = RerunDocument.model_validate_json(json.dumps(document))
    assert found.cost is not None
    (again,) = found.rounds
    assert set(again["cost"]) == RunCost.model_fields.keys() - {"campaign_wall_s"}
    assert found.cost.device_s == pytest.approx(again["cost"]["device_s"])
    assert found.cost.device_s > 0
    assert main(command) == 0
    assert "\nCost: " in capsys.readouterr().out


def test_a_round_that_does_not_exist(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    """Named with the closed ones, before a run is made."""
    campaign = toy.campaign()
    campaign.execute()
    with pytest.raises(NotFoundError, match="no closed round"):
        _again(toy, campaign.run.id, "7")
    code = main(["--root", str(toy.root.path), "rerun", campaign.run.id, "7"])
    assert code == 2
    assert "closed rounds: 1" in capsys.readouterr().err
