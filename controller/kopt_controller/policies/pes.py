"""Planner, executor, summariser, over a population on islands.

Each round is one iteration: an island in turn, a parent drawn from it by its score, a plan, the
agent's candidates from that parent, the judge, a summary, and new members. What is a parent need
not be the incumbent; candidates are gated against the incumbent like any others, and a promotion
is the loop's. After each iteration a checkpoint is left from which another campaign can go on.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kopt_harness.archive import Archive
from kopt_harness.ledger import recorded
from kopt_harness.schema import Solution, Verdict

from ..agents import Answer
from ..asking import Answering, metered
from ..checkpoints import read_checkpoint, write_checkpoint
from ..choosing import catalogue
from ..config import PesOptions, RunConfig
from ..costs import Usage
from ..planning import plan_of, summary_of
from ..population import Member, Population
from ..result import Candidate, RoundResult
from ..world import Turn, World
from .protocol import PlainPolicy, SearchContext, SearchFactory, SearchPolicy

__all__ = ["POLICY", "PesPolicy"]

ID_DIGITS = 12
_NOT_JUDGED = frozenset({Verdict.INFRA, Verdict.INVALID})


class PesPolicy(PlainPolicy):
    """Holds the population; what is in it follows from the rounds alone."""

    name = "pes"

    def __init__(self, context: SearchContext) -> None:
        self._options: PesOptions = context.config.pes
        self._folder = context.folder
        self._seed = context.seed
        start = context.start.get("population")
        known = Population() if start is None else Population.model_validate(start)
        self.population = known.on(self._options.islands)

    def begin(self, world: World, turn: Turn) -> Turn:
        """Draws a parent, and has a plan made; a round that is run again has both of its record."""
        self._settle(world, turn.incumbent)
        plan = recorded(turn.ledger, "plan", lambda: self._plan(world, turn))
        if plan["parent"] in self.population.members:
            self.population = self.population.drawn(plan["parent"])
        parent = None
        if plan["sha256"] != turn.incumbent.sha256:
            parent = world.solutions.get(plan["sha256"])
            parent = parent.model_copy(update={"name": plan["name"]})
        direction = plan["direction"]
        urged = turn.urged if direction is None else (*turn.urged, direction)
        return turn._replace(parent=parent, instructions=plan["plan"], urged=urged)

    def _plan(self, world: World, turn: Turn) -> dict[str, Any]:
        iteration = self.population.iteration + 1
        island = (iteration - 1) % self._options.islands
        seed = f"{self._seed}/{iteration}"
        parent = self.population.draw(island, seed, self._options.explore)
        direction, plan, answer = plan_of(
            _asked(world),
            parent,
            self.population,
            catalogue(world, turn),
            turn.ledger.scoped("planner"),
            incumbent=turn.incumbent.name,
        )
        return {
            "iteration": iteration,
            "island": island,
            "parent": "" if parent is None else parent.id,
            "sha256": turn.incumbent.sha256 if parent is None else parent.sha256,
            "name": turn.incumbent.name if parent is None else parent.name,
            "direction": direction,
            "plan": plan,
            "usage": _used(answer),
        }

    def _settle(self, world: World, incumbent: Solution) -> None:
        """The incumbent is a member: the first of all, with the score 1."""
        if self.population.find(incumbent.sha256) is not None:
            return
        world.solutions.put(incumbent)
        best = self.population.best
        member = Member(
            id=incumbent.sha256[:ID_DIGITS],
            sha256=incumbent.sha256,
            name=incumbent.name,
            score=1.0 if best is None else max(1.0, best.score),
            complexity=_size(incumbent),
            verdict=str(Verdict.PASS),
            detail="the incumbent",
            iteration=self.population.iteration,
        )
        self.population = self.population.add(member, self._options.capacity)

    def end(self, world: World, turn: Turn, result: RoundResult) -> None:
        """Takes in what was judged, lets the best wander, and leaves a checkpoint."""
        found = recorded(turn.ledger, "evolved", lambda: self._evolved(world, turn, result))
        fresh = tuple(Member.model_validate(each) for each in found["members"])
        plan = turn.ledger.get("plan")
        assert plan is not None, "begin has recorded it"
        for member in fresh:
            self.population = self.population.add(member, self._options.capacity)
        self.population = self.population.model_copy(update={"iteration": plan["iteration"]})
        if plan["iteration"] % self._options.migrate_every == 0:
            self.population = self.population.migrated()
        if self._folder is not None:
            name = world.definition.name
            write_checkpoint(self._folder, self.population, world.solutions, name, fresh)

    def _evolved(self, world: World, turn: Turn, result: RoundResult) -> dict[str, Any]:
        plan = turn.ledger.get("plan")
        assert plan is not None, "begin has recorded it"
        level = self.population.find(result.incumbent_before.sha256)
        assert level is not None, "begin has settled the incumbent"
        parent = self.population.members.get(plan["parent"])
        judged = [each for each in result.candidates if each.verdict not in _NOT_JUDGED]
        members = [
            _member(each, plan, parent, level.score, world.solutions.get(each.sha256))
            for each in judged
        ]
        summary, answer = summary_of(
            _asked(world), members, result.direction.id, turn.ledger.scoped("summariser")
        )
        members = [each.model_copy(update={"summary": summary}) for each in members]
        return {
            "members": [each.model_dump(mode="json") for each in members],
            "usage": _used(answer),
        }


def _asked(world: World) -> Answering | None:
    return None if world.writer is None else metered(world.writer, world.meter)


def _used(answer: Answer | None) -> list[dict[str, Any]]:
    uses: tuple[Usage, ...] = () if answer is None else answer.usage
    return [use.model_dump(mode="json") for use in uses]


def _size(solution: Solution) -> float:
    return float(sum(len(source.content) for source in solution.sources))


def _member(
    candidate: Candidate,
    plan: dict[str, Any],
    parent: Member | None,
    level: float,
    solution: Solution,
) -> Member:
    """A candidate as a member; the level is the score of the incumbent of its gate."""
    is_right = candidate.verdict is Verdict.PASS and bool(candidate.ratio)
    comparison = candidate.gate["comparison"] or {}
    return Member(
        id=candidate.sha256[:ID_DIGITS],
        sha256=candidate.sha256,
        name=candidate.name,
        family=candidate.family,
        settings=candidate.settings,
        parent=plan["parent"],
        island=plan["island"],
        iteration=plan["iteration"],
        generation=0 if parent is None else parent.generation + 1,
        timestamp=round(time.time(), 3),
        score=level / candidate.ratio if is_right and candidate.ratio else 0.0,
        complexity=_size(solution),
        plan=plan["plan"],
        ratio=candidate.ratio,
        verdict=str(candidate.verdict),
        detail=candidate.gate["reason"]["detail"],
        mean_us=comparison.get("b_mean_us"),
    )


def _start(config: RunConfig, archive: Archive, definition: str) -> dict[str, Any]:
    if config.pes.checkpoint is None:
        return {}
    folder = Path(config.pes.checkpoint).expanduser()
    population = read_checkpoint(folder, archive, definition)
    return {"population": population.model_dump(mode="json")}


def _create(context: SearchContext) -> SearchPolicy:
    return PesPolicy(context)


POLICY = SearchFactory(create=_create, start=_start)
