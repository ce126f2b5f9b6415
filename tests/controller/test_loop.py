"""The round as a whole, on a simulated device."""

import tomllib
from itertools import pairwise
from typing import Any

import pytest
from kopt_controller.campaign import Campaign
from kopt_controller.simulated import SimulatedDevice
from kopt_harness.errors import NotFoundError
from kopt_harness.journal import read_journal
from kopt_harness.schema import Verdict

Toy = Any
"""The fixture's type lives in conftest.py, which cannot be imported."""


def _pointer(toy: Toy) -> dict[str, Any]:
    path = toy.root.kernels / "toy_op_n" / "retained.toml"
    return tomllib.loads(path.read_text())["cpu"]


def test_a_faster_candidate_becomes_the_incumbent(toy: Toy) -> None:
    """From state to promotion: signature, direction, gate, sweep, decision, pointer."""
    document = toy.campaign().execute().document()
    (only,) = document["rounds"]
    assert only["state"]["bottleneck"] == "launch"
    assert only["state"]["launch_count"] == 9
    assert only["direction"]["id"] == "fusion"
    assert only["decision"]["label"] == "promote"
    assert all(condition["ok"] for condition in only["decision"]["evidence"])
    assert only["incumbent_before"]["name"] == "plain"
    assert only["incumbent"]["name"] == "tuned"
    assert _pointer(toy) == {"solution": "tuned", "sha256": only["incumbent"]["sha256"]}
    assert toy.catalog.incumbent(toy.catalog.resolve("toy"), "cpu").name == "tuned"


def test_the_promised_fields_are_in_the_document(toy: Toy) -> None:
    """What DESIGN section 7 names is there, in every round."""
    document = toy.campaign(rounds=3).execute().document()
    assert document["run"]
    for index, each in enumerate(document["rounds"], start=1):
        assert each["round"] == index
        assert (each["definition"], each["target"]) == ("toy_op_n", "cpu")
        assert {"id", "title"} <= set(each["direction"])
        assert set(each["incumbent"]) == {"name", "sha256"}
        assert {"label", "reason", "evidence"} <= set(each["decision"])
        for candidate in each["candidates"]:
            assert {"name", "sha256", "verdict", "gate"} <= set(candidate)


def test_rounds_climb_to_the_best_setting(toy: Toy) -> None:
    """Each round starts from what the one before promoted, until the bowl's floor is reached."""
    rounds = toy.campaign(rounds=10).execute().rounds
    # The bowl has its minimum at TILE 8, UNROLL 4.
    assert rounds[-1].incumbent.name == "tuned-TILE8-UNROLL4"
    for earlier, later in pairwise(rounds):
        assert later.incumbent_before == earlier.incumbent


def test_nothing_is_measured_twice(toy: Toy) -> None:
    """A candidate that memory knows is not proposed again while there is something new."""
    rounds = toy.campaign(rounds=6).execute().rounds
    shas = [c.sha256 for r in rounds if r.direction.id != "exploration" for c in r.candidates]
    assert len(shas) == len(set(shas))


def test_memory_reaches_the_next_run(toy: Toy) -> None:
    """A second run does not measure again what the first one has shown."""
    first = toy.campaign().execute().rounds[0]
    second = toy.campaign().execute().rounds[0]
    assert not {c.sha256 for c in first.candidates} & {c.sha256 for c in second.candidates}
    assert second.incumbent_before == first.incumbent


@pytest.mark.parametrize(
    ("verdict", "label"),
    [
        (Verdict.FAIL, "reject"),
        (Verdict.REJECT, "reject"),
        (Verdict.CRASH, "reject"),
        (Verdict.TIMEOUT, "reject"),
        (Verdict.INFRA, "archive"),
        (Verdict.INVALID, "archive"),
    ],
)
def test_what_is_not_right_never_gets_a_sweep(toy: Toy, verdict: Verdict, label: str) -> None:
    """Wrong candidates are rejected; what the machine did is not held against them."""
    names = ["tuned", *(f"tuned-{k}{v}" for k in ("TILE", "UNROLL") for v in (2, 4, 8, 16))]
    device = toy.device._replace(verdicts=dict.fromkeys(names, verdict))
    (result,) = toy.campaign(device, max_candidates=2).execute().rounds
    assert result.sweep is None
    assert result.decision.label == label
    assert result.incumbent == result.incumbent_before
    assert "sha256" not in _pointer(toy)


def test_a_slower_candidate_is_rejected(toy: Toy) -> None:
    """Correct and slower is still no."""
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    (result,) = toy.campaign(device).execute().rounds
    assert result.decision.label == "reject"
    assert "slower" in result.decision.reason


def test_an_equal_candidate_is_archived(toy: Toy) -> None:
    """Within the noise it is kept for later, not promoted."""
    device = SimulatedDevice(latency_us=lambda _s, _w: 10.0, noise=0.0005)
    (result,) = toy.campaign(device).execute().rounds
    assert result.decision.label == "archive"
    assert result.decision.code == "speed"


def test_a_flag_bars_promotion(toy: Toy) -> None:
    """Faster, and flagged: a person has to look."""
    device = toy.device._replace(flags={"tuned": "library-call"})
    (result,) = toy.campaign(device, max_candidates=1).execute().rounds
    assert (result.decision.label, result.decision.code) == ("archive", "flags")


def test_a_public_seed_bars_promotion(toy: Toy) -> None:
    """Inputs that a candidate could know decide nothing."""
    (result,) = toy.campaign(measure={"seed": 3}).execute().rounds
    assert (result.decision.label, result.decision.code) == ("archive", "inputs")


def test_a_partial_sweep_bars_promotion(toy: Toy) -> None:
    """No incomplete sweep is evidence."""
    (result,) = toy.campaign(sweep_workloads=["0", "1"]).execute().rounds
    assert (result.decision.label, result.decision.code) == ("archive", "coverage")


def test_asking_leaves_the_pointer_alone(toy: Toy) -> None:
    """With ask the round ends with something that a person can promote."""
    (result,) = toy.campaign(promotion="ask").execute().rounds
    assert result.decision.label == "promote"
    assert result.promotion is not None
    assert not result.promotion.applied
    assert f"/{result.round}" in result.promotion.detail
    assert result.incumbent == result.incumbent_before
    assert "sha256" not in _pointer(toy)
    assert not toy.root.retained.exists()


def test_an_incumbent_that_moved_meanwhile_is_not_overwritten(toy: Toy) -> None:
    """A promotion is relative to what was compared; another incumbent needs another comparison."""
    campaign = toy.campaign()
    source = toy.root.kernels / "toy_op_n/solutions/plain/solution/python/kernel.py"
    source.write_text(source.read_text() + "# another version\n")
    pointer = _pointer(toy)
    (late,) = campaign.execute().rounds
    assert late.decision.label == "promote"
    assert late.promotion is not None
    assert not late.promotion.applied
    assert "has become the incumbent since" in late.promotion.detail
    assert late.incumbent == late.incumbent_before
    assert _pointer(toy) == pointer


def test_an_exhausted_space_ends_with_a_decision(toy: Toy) -> None:
    """Rounds with nothing to propose are archived, and the supervisor asks for a person."""
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 30.0)
    rounds = toy.campaign(device, rounds=12, max_candidates=20).execute().rounds
    assert len(rounds) == 12
    assert rounds[-1].decision.code == "no-candidates"
    assert any(signal.kind == "exhausted" for signal in rounds[-1].signals)
    assert not any(signal.kind == "stall" for signal in rounds[0].signals)


def test_the_budget_stops_further_rounds(toy: Toy) -> None:
    """A campaign out of time ends after the round that it is in."""
    assert len(toy.campaign(rounds=5, budget_s=1e-6).execute().rounds) == 1


def test_evidence_is_written_with_the_promotion(toy: Toy) -> None:
    """The retained folder has what DESIGN section 7 asks for, and the samples behind it."""
    import gzip
    import json

    (result,) = toy.campaign().execute().rounds
    folder = toy.root.retained / "toy_op_n" / "cpu"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["solution"]["sha256"] == result.incumbent.sha256
    assert [row["uuid"][:8] for row in summary["workloads"]] == [f"0000000{i}" for i in range(4)]
    assert summary["mean_us"] == pytest.approx(
        sum(row["median_us"] for row in summary["workloads"]) / 4
    )
    samples = json.loads(gzip.decompress((folder / "samples.json.gz").read_bytes()))
    blocks = [value for key, value in samples.items() if "/block/" in key]
    representatives = len(toy.catalog.representatives(toy.catalog.resolve("toy")))
    assert len(blocks) == (4 + representatives) * toy.device.blocks, "sweep and validation"
    assert all(block["a_ns"] and block["b_ns"] for block in blocks)


def test_an_unknown_definition_makes_no_run(toy: Toy) -> None:
    """Bad input leaves nothing half-written."""
    from kopt_controller.campaign import start_campaign
    from kopt_controller.config import RunConfig

    with pytest.raises(NotFoundError):
        start_campaign(toy.root, "nothing", RunConfig(), lambda *_: None, lambda _: None)
    with pytest.raises(NotFoundError, match="no incumbent"):
        toy.campaign(target="b200")
    assert not (toy.root.local / "runs").exists()


def test_keys_of_samples_carry_the_epoch(toy: Toy) -> None:
    """Samples of two states of a device can never be mixed."""
    campaign: Campaign = toy.campaign()
    campaign.execute()
    keys = [record.key for record in read_journal(campaign.run.journal_path)]
    assert all("/simulated/" in key for key in keys if "/block/" in key)
