"""Evidence for and against, across runs."""

from typing import Any

from kopt_controller.memory import Memory, gather
from kopt_controller.simulated import SimulatedDevice
from kopt_harness.archive import Archive
from kopt_harness.schema import Verdict

Toy = Any


def test_memory_is_gathered_from_journals_alone(toy: Toy) -> None:
    """What a run has learnt is what its journal says."""
    campaign = toy.campaign(rounds=2)
    results = campaign.execute().rounds
    expected = Memory()
    for result in results:
        expected = expected.learn(campaign.run.id, result)
    assert gather(campaign.archive, "toy_op_n", "cpu") == expected
    assert {trial.sha256 for past in expected.rounds for trial in past.trials} == (
        expected.measured()
    )


def test_other_definitions_and_targets_are_not_mixed_in(toy: Toy) -> None:
    """A direction that helped elsewhere says nothing here."""
    campaign = toy.campaign()
    campaign.execute()
    assert gather(campaign.archive, "toy_op_n", "h200") == Memory()
    assert gather(campaign.archive, "other", "cpu") == Memory()


def test_negative_evidence_is_kept(toy: Toy) -> None:
    """A rejected round is remembered with its ratio."""
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    campaign = toy.campaign(device)
    campaign.execute()
    (past,) = gather(campaign.archive, "toy_op_n", "cpu").rounds
    assert past.label == "reject"
    assert past.gain == 0
    assert all(trial.ratio is not None and trial.ratio > 1 for trial in past.trials)


def test_machine_failures_do_not_count_as_measured(toy: Toy) -> None:
    """A candidate that could not be judged may be proposed again."""
    device = toy.device._replace(verdicts={"tuned": Verdict.INFRA})
    campaign = toy.campaign(device, max_candidates=1)
    campaign.execute()
    memory = gather(campaign.archive, "toy_op_n", "cpu")
    assert len(memory.rounds) == 1
    assert memory.measured() == frozenset()


def test_a_damaged_run_does_not_stop_the_others(toy: Toy) -> None:
    """Its evidence is missing; the rest is there."""
    first, second = toy.campaign(), toy.campaign()
    first.execute()
    second.execute()
    path = first.run.journal_path
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    memory = gather(Archive(toy.root.local), "toy_op_n", "cpu")
    assert [past.run for past in memory.rounds] == [second.run.id]


def test_a_run_starts_from_a_snapshot(toy: Toy) -> None:
    """What others learn while it is interrupted does not change its choices."""
    waiting = toy.campaign()
    toy.campaign().execute()
    assert waiting.manifest.memory == Memory()
    assert waiting.execute().rounds[0].candidates[0].name == "tuned"
