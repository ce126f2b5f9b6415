"""Search policies: one contract for all, and what each does by itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.agents import Proposals, RoundBrief
from kopt_controller.campaign import open_campaign, start_campaign
from kopt_controller.checkpoints import checkpoint_folder
from kopt_controller.config import RunConfig
from kopt_controller.policies import (
    SearchContext,
    SearchPolicy,
    check_search,
    get_search,
    search_names,
)
from kopt_controller.policies.goal_only import GOAL
from kopt_controller.population import Member, Population
from kopt_controller.result import RoundResult
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness, bowl
from kopt_controller.world import World
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.foreign import read_results
from kopt_harness.journal import read_journal
from kopt_harness.schema import Solution, Workload

Toy = Any
"""The fixture's type lives in conftest.py, which cannot be imported."""

ROUNDS = 3


def _run(toy: Toy, **config: Any) -> tuple[Any, tuple[RoundResult, ...]]:
    """A campaign with its rounds."""
    campaign = toy.campaign(**({"rounds": ROUNDS, "max_candidates": 3} | config))
    return campaign, campaign.execute().rounds


@pytest.mark.parametrize("name", search_names())
def test_a_policy_keeps_the_contract(toy: Toy, name: str) -> None:
    """It has its name, judges by the loop, and finds what is faster with the agent ``knobs``."""
    config = RunConfig(policy=name)
    made = get_search(name).create(SearchContext(config=config, seed=1, start={}))
    assert isinstance(made, SearchPolicy)
    assert made.name == name
    campaign, rounds = _run(toy, policy=name)
    assert [result.policy for result in rounds] == [name] * ROUNDS
    assert rounds[-1].incumbent.name.startswith("tuned")
    for result in rounds:
        moved = result.incumbent != result.incumbent_before
        promoted = result.promotion is not None and result.promotion.applied
        assert moved == (promoted or result.committed)
        assert result.committed <= (name == "single-lineage")
    keys = [record.key for record in read_journal(campaign.run.journal_path)]
    assert any(key.startswith("r1/gate/") for key in keys)


@pytest.mark.parametrize("name", search_names())
def test_a_policy_resumes_from_every_part_of_its_journal(toy: Toy, name: str) -> None:
    """Cut after a record or inside one: with equal samples, the same rounds, nothing anew."""
    campaign, _ = _run(toy, policy=name)
    expected = campaign.execute().document()
    path = campaign.run.journal_path
    lines = path.read_bytes().splitlines(keepends=True)
    keys = [record.key for record in read_journal(path)]
    pointer = toy.root.kernels / "toy_op_n" / "retained.toml"
    for count in range(1, len(lines), max(1, len(lines) // 3)):
        path.write_bytes(b"".join(lines[:count]) + lines[count][: len(lines[count]) // 2])
        pointer.write_text(_pointer(expected["rounds"], keys[:count]))
        harness = SimulatedHarness("cpu", toy.device)
        resumed = open_campaign(toy.root, campaign.run.id, lambda *_, h=harness: h, lambda _: None)
        found = resumed.execute().document()
        assert found == expected
        assert harness.units == sum("/block/" in k or "/check/" in k for k in keys[count:])


def _pointer(rounds: list[dict[str, Any]], keys: list[str]) -> str:
    """The pointer as it was after the promotions among these keys."""
    done = [int(key[1:].partition("/")[0]) for key in keys if key.endswith("/promotion")]
    if not done:
        return '[cpu]\nsolution = "plain"\n'
    now = rounds[max(done) - 1]["incumbent"]
    return f'[cpu]\nsolution = "{now["name"]}"\nsha256 = "{now["sha256"]}"\n'


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    """The hint lists what there is."""
    with pytest.raises(NotFoundError) as caught:
        get_search("best")
    assert "single-lineage" in caught.value.hint


def test_manifests_of_before_go_on_as_assisted() -> None:
    """They name the order of directions where the policy is now."""
    assert RunConfig.model_validate({"policy": "match"}).policy == "assisted"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"reviewer": "knobs"}, "cannot be a reviewer"),
        ({"debaters": ("inbox", "knobs")}, "cannot be a debater"),
        ({"mechanisms": ("memory",)}, "mechanisms memory"),
    ],
)
def test_what_no_policy_could_follow_is_refused_at_the_start(
    toy: Toy, config: dict[str, Any], said: str
) -> None:
    """Before a run is made, and with what to do instead."""
    with pytest.raises(InvalidInputError, match=said):
        toy.campaign(**config)
    assert not (toy.root.local / "runs").exists()


class _Watched:
    """An agent that keeps the briefs of another one."""

    def __init__(self, agent: Any, briefs: list[RoundBrief]) -> None:
        self._agent = agent
        self._briefs = briefs
        self.name = agent.name

    def propose(self, brief: RoundBrief) -> Proposals:
        self._briefs.append(brief)
        found: Proposals = self._agent.propose(brief)
        return found


def _briefs(toy: Toy, **config: Any) -> list[RoundBrief]:
    briefs: list[RoundBrief] = []

    def adapt(world: World) -> World:
        return replace(world, agent=_Watched(world.agent, briefs))

    campaign = toy.campaign(**({"rounds": ROUNDS, "max_candidates": 3} | config))
    campaign._replace(adapt=adapt).execute()
    return briefs


def test_a_goal_only_agent_is_told_nothing(toy: Toy) -> None:
    """No state, no memory, no direction: only what needs no measuring again."""
    briefs = _briefs(toy, policy="goal-only")
    assert len(briefs) == ROUNDS
    for brief in briefs:
        assert brief.mode == "goal-only"
        assert brief.direction == GOAL
        assert brief.direction.playbook == ""
        assert brief.memory.rounds == ()
        assert brief.state.focus.total_us is None
        assert brief.state.focus.bottleneck == "unknown"
    assert len(briefs[-1].memory.measured()) > 0
    told = _briefs(toy)
    assert told[0].mode == "full"
    assert told[0].state.focus.total_us is not None


def test_a_mechanism_is_given_back_alone(toy: Toy) -> None:
    """Memory without directions, directions without memory, state without both."""
    memory = _briefs(toy, policy="goal-only", mechanisms=("memory",))
    assert memory[-1].memory.rounds
    assert memory[-1].direction == GOAL
    directions = _briefs(toy, policy="goal-only", mechanisms=("directions",))
    assert directions[-1].memory.rounds == ()
    assert directions[0].direction != GOAL
    state = _briefs(toy, policy="goal-only", mechanisms=("state",))
    assert state[0].state.focus.total_us is not None
    assert state[0].shown == frozenset({"state"})


def _flat(us: dict[str, float]) -> Callable[[Solution, Workload], float]:
    """A latency by name, for what has one; the rest is slow."""
    return lambda solution, workload: us.get(solution.name, 500.0)


def _line(toy: Toy, noise: float, **names: float) -> SimulatedDevice:
    us = {"plain": 50.0} | names
    return SimulatedDevice(latency_us=_flat(us), noise=noise, blocks=6)


def _scripted(
    toy: Toy, make_solution: Callable[[Path, str], None], plain: str, names: list[str]
) -> tuple[str, ...]:
    """Solutions that differ in a comment and their name, for the scripted agent."""
    paths = []
    for name in names:
        folder = toy.root.path / "scripted" / name
        make_solution(folder, plain.replace('"plain"', f'"{name}"'))
        source = folder / "solution" / "python" / "kernel.py"
        source.write_text(source.read_text() + f"TAG_{name} = {len(names) + names.index(name)}\n")
        paths.append(str(folder))
    return tuple(paths)


def test_a_lineage_takes_what_does_not_regress(
    toy: Toy, make_solution: Callable[[Path, str], None], plain_config: str
) -> None:
    """A version within the margin is committed and not promoted; what is slower is neither."""
    device = _line(toy, 0.0005, near=49.6, worse=52.0, best=48.5)
    scripted = _scripted(toy, make_solution, plain_config, ["near", "worse", "best"])
    campaign = toy.campaign(
        device,
        agent="scripted",
        scripted=scripted,
        policy="single-lineage",
        rounds=3,
        max_candidates=1,
    )
    first, second, third = campaign.execute().rounds
    assert (first.committed, first.promotion, first.incumbent.name) == (True, None, "near")
    assert first.decision.label == "archive"
    assert (second.committed, second.incumbent.name) == (False, "near")
    assert third.incumbent_before.name == "near"
    assert third.promotion is not None
    assert third.promotion.applied
    assert "against the retained plain" in third.decision.reason
    assert third.sweep is not None
    assert third.sweep.comparison is not None
    assert third.sweep.comparison.ratio == pytest.approx(48.5 / 50.0, abs=0.003)
    incumbent = toy.catalog.incumbent(toy.catalog.resolve("toy"), "cpu")
    assert incumbent is not None
    assert incumbent.name == "best"
    # Samples of the evidence are those against what was retained, and no others.
    (samples,) = toy.root.retained.rglob("samples.json.gz")
    keys = list(json.loads(gzip.decompress(samples.read_bytes())))
    assert keys
    assert all(key.startswith(("r3/retained/sweep/", "r3/retained/validation/")) for key in keys)


def test_a_lineage_promotes_nothing_that_only_beats_its_newest_version(
    toy: Toy, make_solution: Callable[[Path, str], None], plain_config: str
) -> None:
    """What is faster than a version, and not than what is retained, moves the line alone."""
    device = SimulatedDevice(latency_us=_flat({"plain": 50.0, "near": 49.9}), noise=0.0005)
    scripted = _scripted(toy, make_solution, plain_config, ["near", "next"])
    slow = {"on": False}

    def latency_us(solution: Solution, workload: Workload) -> float:
        if solution.name == "near":
            return 52.0 if slow["on"] else 49.9
        return {"plain": 50.0, "next": 49.8}.get(solution.name, 500.0)

    campaign = toy.campaign(
        device._replace(latency_us=latency_us),
        agent="scripted",
        scripted=scripted,
        policy="single-lineage",
        rounds=2,
        max_candidates=1,
    )
    campaign = campaign._replace(
        notify=lambda text: slow.update(on=slow["on"] or "round 2" in text)
    )
    first, second = campaign.execute().rounds
    assert first.committed
    assert second.incumbent_before.name == "near"
    assert second.decision.label == "archive"
    assert "against the retained plain" in second.decision.reason
    assert second.committed
    assert second.incumbent.name == "next"
    incumbent = toy.catalog.incumbent(toy.catalog.resolve("toy"), "cpu")
    assert incumbent is not None
    assert incumbent.name == "plain"


def test_stagnation_sends_a_lineage_elsewhere(toy: Toy) -> None:
    """After two rounds without a version, a direction that was not tried since comes next."""
    optimum = {"TILE": 1, "UNROLL": 1}
    device = toy.device._replace(latency_us=bowl({"plain": 10.0, "tuned": 50.0}, optimum))
    campaign = toy.campaign(device, policy="single-lineage", rounds=4, max_candidates=2)
    rounds = campaign.execute().rounds
    assert not any(result.committed for result in rounds)
    assert [result.rung for result in rounds[:2]] == [None, None]
    assert rounds[2].rung == "widen"
    tried = {result.direction.id for result in rounds[:2]}
    assert rounds[2].ranking[0].id not in tried
    assert rounds[1].ranking[0].id in tried


def test_a_population_goes_on_from_its_checkpoint(toy: Toy) -> None:
    """Another campaign has the members of the first, on as many islands, and new ones."""
    campaign, rounds = _run(toy, policy="pes", pes={"islands": 2, "migrate_every": 2})
    folder = checkpoint_folder(campaign.run.folder, ROUNDS)
    metadata = json.loads((folder / "metadata.json").read_text())
    judged = sum(len(result.candidates) for result in rounds)
    assert metadata["last_iteration"] == ROUNDS
    assert metadata["total_generated_solutions"] == 1 + judged
    assert metadata["last_migration_generation"] == 2
    best = json.loads((folder / "best_solution.json").read_text())
    assert best["score"] == max(metadata["feature_stats"]["score"]["values"])

    again = toy.campaign(
        policy="pes", rounds=1, max_candidates=2, pes={"islands": 2, "checkpoint": str(folder)}
    )
    result = again.execute().rounds[0]
    later = checkpoint_folder(again.run.folder, ROUNDS + 1)
    grown = json.loads((later / "metadata.json").read_text())
    assert grown["total_generated_solutions"] == 1 + judged + len(result.candidates)
    ids = {path.stem for path in (folder / "solutions").iterdir()}
    assert ids <= {path.stem for path in (later / "solutions").iterdir()}


def test_a_replay_writes_the_same_checkpoints(toy: Toy) -> None:
    """They follow from the journal, also the time of a member."""
    campaign, _ = _run(toy, policy="pes")
    folder = campaign.run.folder / "database"
    files = {path: path.read_bytes() for path in folder.rglob("*.json")}
    for path in files:
        path.unlink()
    open_campaign(toy.root, campaign.run.id, lambda *_: None, lambda _: None).execute()
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == files


def test_a_checkpoint_reads_as_the_trace_of_a_search(toy: Toy) -> None:
    """The reader for other searches' results understands every file, and the same figures."""
    campaign, rounds = _run(toy, policy="pes")
    folder = campaign.run.folder
    reading = read_results([folder / "evaluator", *sorted((folder / "database").rglob("best_*"))])
    assert reading.problems == ()
    assert all(file.reader == "search-trace" for file in reading.files)
    found = {r.source_sha256: r.speedup for r in reading.results if r.kind == "mean"}
    first = {c.sha256: c.ratio for c in rounds[0].candidates}
    for sha256, ratio in first.items():
        assert ratio is not None
        assert found[sha256] == pytest.approx(1 / ratio)
    kept = [r for r in reading.results if r.kind == "selected"]
    assert len(kept) == ROUNDS


def test_parents_are_of_the_population_and_drawn_by_the_seed(toy: Toy) -> None:
    """The brief of the agent starts from the parent; the same seed draws the same one."""
    briefs = _briefs(toy, policy="pes", promotion="ask")
    parents = [brief.incumbent.name for brief in briefs]
    assert parents[0] == "plain"
    assert any(name.startswith("tuned") for name in parents[1:])
    population = Population.empty(2)
    for number in range(8):
        member = Member(id=f"{number:012x}", sha256=str(number), name=str(number), score=number)
        population = population.add(member, 24)
    drawn = [population.draw(0, f"1/{n}", 0.2) for n in range(300)]
    assert drawn == [population.draw(0, f"1/{n}", 0.2) for n in range(300)]
    scores = [member.score for member in drawn if member is not None]
    assert min(scores) > 0
    assert scores.count(7.0) > 3 * scores.count(1.0)


def test_an_island_keeps_what_is_best_and_what_is_different() -> None:
    """Beyond its capacity the worst outside of the map goes; the best wander to the next one."""
    population = Population.empty(2)
    for number in range(12):
        member = Member(
            id=f"{number:012x}",
            sha256=str(number),
            name=str(number),
            score=1.0 + number / 100,
            complexity=5000.0 if number == 0 else 100.0,
        )
        population = population.add(member, 6)
    kept = [population.members[id_].name for id_ in population.islands[0]]
    assert len(kept) == 6
    assert {"0", "11"} <= set(kept)
    assert population.generated == 12
    assert population.migrated().islands[1] == (f"{11:012x}",)
    again = population.members[f"{11:012x}"].model_copy(update={"score": 3.0})
    assert len(population.add(again, 6).members) == 6
    assert population.add(again, 6).best == again


def test_a_checkpoint_of_something_else_is_refused(toy: Toy, tmp_path: Path) -> None:
    """No checkpoint, one without sources, and one whose sources were changed."""
    with pytest.raises(NotFoundError, match="no checkpoint"):
        toy.campaign(policy="pes", pes={"checkpoint": str(tmp_path)})
    campaign, _ = _run(toy, policy="pes", rounds=1)
    folder = checkpoint_folder(campaign.run.folder, 1)
    path = next(iter((folder / "solutions").iterdir()))
    document = json.loads(path.read_text())
    document["packed"]["sources"][0]["content"] += "# more\n"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInputError, match="its sources are not those"):
        toy.campaign(policy="pes", pes={"checkpoint": str(folder)})
    for each in (folder / "solutions").iterdir():
        each.unlink()
    with pytest.raises(NotFoundError, match="no sources"):
        toy.campaign(policy="pes", pes={"checkpoint": str(folder)})


def test_every_policy_is_checked_before_a_run(toy: Toy) -> None:
    """A name that is none ends it before anything is written."""
    with pytest.raises(NotFoundError):
        check_search(RunConfig(policy="best"))
    with pytest.raises(NotFoundError):
        start_campaign(toy.root, "toy", RunConfig(policy="best"), lambda *_: None, lambda _: None)
    assert not (toy.root.local / "runs").exists()
