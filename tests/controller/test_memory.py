"""Evidence for and against, across runs."""

from typing import Any

from kopt_controller.indexed import open_index
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
    tried = {trial.sha256 for past in expected.rounds for trial in past.trials}
    beaten = {past.incumbent for past in expected.rounds if past.trials}
    assert tried | beaten == expected.measured()


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


def test_a_round_of_another_version_does_not_stop_the_others(toy: Toy) -> None:
    """A record that lacks a field is left out and named, never half-read."""
    first, second = toy.campaign(), toy.campaign()
    first.execute()
    second.execute()
    path = first.run.journal_path
    path.write_bytes(path.read_bytes().replace(b'"incumbent_before"', b'"incumbent_earlier"'))
    memory = gather(Archive(toy.root.local), "toy_op_n", "cpu")
    assert [past.run for past in memory.rounds] == [second.run.id]
    with open_index(toy.root.local) as index:
        (problem,) = index.problems()
    assert "incumbent_before" in problem


def test_a_run_starts_from_a_snapshot(toy: Toy) -> None:
    """What others learn while it is interrupted does not change its choices."""
    waiting = toy.campaign()
    toy.campaign().execute()
    assert waiting.manifest.memory == Memory()
    assert waiting.execute().rounds[0].candidates[0].name == "tuned"


def test_an_unfair_sweep_leaves_a_candidate_pending(toy: Toy) -> None:
    """A partial sweep settles nothing: the next run sweeps the same candidate, whole."""
    partial = toy.campaign(sweep_workloads=["0"], max_candidates=1).execute().rounds[0]
    assert partial.decision.code == "coverage"
    again = toy.campaign(max_candidates=1).execute().rounds[0]
    assert again.best == partial.best
    assert again.decision.label == "promote"


def test_a_flagged_candidate_is_settled(toy: Toy) -> None:
    """It waits for a person; the search goes on with the others."""
    device = toy.device._replace(flags={"tuned": "library-call"})
    toy.campaign(device, max_candidates=1).execute()
    second = toy.campaign(device, max_candidates=1).execute().rounds[0]
    assert second.best is not None
    assert second.best.name != "tuned"


def test_the_second_best_of_a_round_gets_its_turn(toy: Toy) -> None:
    """Where the best of a round was not promoted, the next round begins with the other."""
    latencies = {"plain": 50.0, "tuned": 40.0, "tuned-TILE8": 5.0}
    device = toy.device._replace(
        flags={"tuned-TILE8": "library-call"},
        latency_us=lambda s, _: latencies.get(s.name, 10.0),
    )
    campaign = toy.campaign(device, rounds=3, max_candidates=5, search_seed=2)
    _, second, third = campaign.execute().rounds
    assert second.best is not None
    assert second.best.name == "tuned-TILE8"
    assert second.decision.code == "flags"
    waiting = {c.sha256 for c in second.candidates} - {second.best.sha256}
    assert third.candidates[0].sha256 in waiting
    assert third.decision.label == "promote"
