"""Several sub-agents on one direction, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_controller.agents import Proposal, Proposals, RoundBrief
from kopt_controller.agents.writing import SeveralAgents
from kopt_controller.agents.writing.task import goal_only
from kopt_harness.ledger import DictLedger

Toy = Any


class _Author:
    """Proposes by the number of its sub-agent, once all are at work."""

    name = "author"

    def __init__(self, solutions: list[Any], count: int) -> None:
        self._solutions = solutions
        self._all = threading.Barrier(count, timeout=30)
        self.briefs: list[RoundBrief] = []

    def propose(self, brief: RoundBrief) -> Proposals:
        self.briefs.append(brief)
        self._all.wait()
        number = int(brief.sub_agent.rpartition("-")[2]) - 1
        assert brief.ledger is not None
        brief.ledger.put("seen", {"by": number})
        mine = [self._solutions[number], self._solutions[0]][: brief.limit]
        return Proposals(tuple(Proposal(each, f"by {number}") for each in mine), ("a note",))


def _brief(limit: int, ledger: DictLedger) -> RoundBrief:
    """Only what is shared out matters here."""
    nothing: Any = None
    return RoundBrief(
        definition=nothing,
        target="cpu",
        round=1,
        state=nothing,
        direction=nothing,
        incumbent=nothing,
        memory=nothing,
        limit=limit,
        seed=7,
        instructions="the plan",
        ledger=ledger,
    )


def test_sub_agents_work_side_by_side_and_share_the_round(
    toy: Toy, toy_draft: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Each has its own seed, journal and share; equal drafts count once, in the same order."""
    solutions = [toy.solution("plain"), toy.solution("tuned")]
    solutions.append(solutions[0].model_copy(update={"author": "another", "name": "third"}))
    ledger = DictLedger()
    author = _Author(solutions, 3)
    found = SeveralAgents(author, 3).propose(_brief(4, ledger))
    briefs = sorted(author.briefs, key=lambda brief: brief.seed)
    assert [brief.limit for brief in briefs] == [2, 1, 1]
    assert [brief.seed for brief in briefs] == [7, 8, 9]
    assert len({brief.sub_agent for brief in briefs}) == 3
    assert all(brief.instructions.startswith("the plan") for brief in briefs)
    assert [ledger.get(f"{n}/seen") for n in range(3)] == [{"by": n} for n in range(3)]
    hashes = [proposal.solution.sha256 for proposal in found.candidates]
    assert hashes == list(dict.fromkeys(solution.sha256 for solution in solutions))
    assert found.notes == ("a note",)


def test_no_more_sub_agents_than_the_round_can_measure(toy: Toy) -> None:
    """One candidate is one agent's, with the whole brief."""
    author = _Author([toy.solution("plain")] * 2, 1)
    found = SeveralAgents(author, 3).propose(_brief(1, DictLedger()))
    assert len(author.briefs) == len(found.candidates) == 1
    assert author.briefs[0].instructions == "the plan"


def test_a_goal_only_task_keeps_what_is_shown(toy: Toy) -> None:
    """And nothing else: each mechanism is a part of the task by itself."""
    from kopt_controller.agents import AgentTask, Evidence
    from kopt_controller.directions import load_directions

    evidence = Evidence(name="a", direction="fusion", technique="x", outcome="y", helped=True)
    task = AgentTask(
        round=2,
        definition=toy.catalog.resolve("toy"),
        contract="",
        reference="",
        target="cpu",
        languages=("python",),
        drafts=1,
        direction=load_directions()["fusion"],
        evidence=(evidence,),
        steers=("note x",),
    )
    bare = goal_only(task)
    assert (bare.direction, bare.evidence, bare.skills, bare.tools) == (None, (), False, False)
    memory = goal_only(task, frozenset({"memory"}))
    assert (memory.direction, memory.evidence) == (None, (evidence,))
    direction = goal_only(task, frozenset({"directions", "tools"}))
    assert direction.direction is not None
    assert (direction.evidence, direction.tools, direction.skills) == ((), True, False)
    assert direction.steers == memory.steers == ()
