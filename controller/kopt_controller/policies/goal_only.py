"""A general agent with the objective and the constraints, and nothing else.

No skills, no state, no memory, no workflow, no direction: what is left is the definition, the
contract and what must be beaten. The harness judges as ever. ``mechanisms`` of the run
configuration gives single parts back, for experiments: see ``kopt ablate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..agents import Agent, Proposals, RoundBrief
from ..directions import Direction
from ..mechanisms import Mechanism
from ..memory import Memory
from ..policy import Policy
from ..result import Choice
from ..state import Signature, State
from ..supervisor import Advice
from ..world import Seat, Turn, World
from .protocol import PlainPolicy, SearchContext, SearchFactory, SearchPolicy

__all__ = ["GOAL", "POLICY", "GoalOnlyPolicy"]

GOAL = Direction(
    id="goal",
    title="The objective alone",
    expected_effect="less time",
    prior_gain=0.05,
    levers=("*",),
    languages=("cpp", "cuda", "triton", "cutedsl", "python"),
    targets=("cpu", "cuda"),
    risks=(),
    references=(),
    fits={},
    misses={},
    rewrites=True,
    playbook="",
)
"""Stands where a direction is recorded; it says nothing."""


class GoalOnlyPolicy(PlainPolicy):
    """Shows the agent as little as the mechanisms that are on allow."""

    name = "goal-only"

    def __init__(self, shown: frozenset[Mechanism]) -> None:
        self._shown = shown

    def world(self, world: World) -> World:
        """The campaign without what is switched off."""
        if "directions" not in self._shown:
            kept = replace(world, directions={GOAL.id: GOAL}, policy=_OneGoal(), ladder=())
        elif "memory" not in self._shown:
            kept = replace(world, policy=_Forgetful(world.policy), ladder=())
        else:
            kept = world
        if "memory" not in self._shown:
            kept = replace(kept, refuse_duplicates=False)
        if "state" not in self._shown:
            kept = replace(kept, regroup=None)
        return replace(kept, agent=_Blinkered(world.agent, self._shown), seat=self._seat(world))

    def _seat(self, world: World) -> Any:
        if world.seat is None:
            return None
        seat = world.seat

        def blinkered(name: str) -> Seat:
            found = seat(name)
            return found._replace(agent=_Blinkered(found.agent, self._shown))

        return blinkered

    def begin(self, world: World, turn: Turn) -> Turn:
        """Without memory there is nothing to supervise."""
        del world
        is_watched = {"memory", "directions"} <= self._shown
        return turn if is_watched else turn._replace(is_supervised=False)


class _Blinkered:
    """An agent that sees only what is shown."""

    def __init__(self, agent: Agent, shown: frozenset[Mechanism]) -> None:
        self._agent = agent
        self._shown = shown
        self.name = agent.name

    def propose(self, brief: RoundBrief) -> Proposals:
        """What the agent has for the rest of the brief."""
        if "memory" not in self._shown:
            brief = brief._replace(memory=_bare(brief))
        if "state" not in self._shown:
            brief = brief._replace(state=_blank(brief.state))
        return self._agent.propose(brief._replace(mode="goal-only", shown=self._shown))


def _bare(brief: RoundBrief) -> Memory:
    """Which contents need no measuring: who has handed one in knows that, and no more."""
    return Memory().refusing(sorted(brief.memory.measured()))


def _blank(state: State) -> State:
    """One signature in which nobody has measured anything."""
    signature = Signature(
        regime="all",
        uuid=state.focus.uuid,
        axes={},
        workloads=sum(each.workloads for each in state.regimes),
        total_us=None,
        time_share=None,
        dominant_kernel=None,
        dominant_share=None,
        bottleneck="unknown",
        basis="none",
        limiting_resource=None,
        occupancy_theoretical=None,
        occupancy_achieved=None,
        compute_throughput=None,
        memory_throughput=None,
        waves_per_sm=None,
        spill_bytes=None,
        launch_count=None,
        floor_us=None,
        distance_to_floor=None,
        flop_per_byte=0.0,
        profiler="none",
    )
    return State(focus=signature, regimes=(signature,))


class _OneGoal:
    """There is one goal, and no choice."""

    name = "goal"

    def rank(
        self,
        state: State,
        directions: Mapping[str, Direction],
        memory: Memory,
        advice: Advice,
        incumbent: str,
        *,
        seed: int = 0,
    ) -> tuple[Choice, ...]:
        """The goal, unless a person has blocked it."""
        del state, memory, incumbent, seed
        return tuple(
            Choice(
                id=each.id,
                title=each.title,
                score=1.0,
                reason="there is no other",
                expected_effect=each.expected_effect,
                levers=each.levers,
            )
            for each in directions.values()
            if each.id not in advice.blocked
        )


class _Forgetful:
    """An order of directions that does not know what came of them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    def rank(
        self,
        state: State,
        directions: Mapping[str, Direction],
        memory: Memory,
        advice: Advice,
        incumbent: str,
        *,
        seed: int = 0,
    ) -> tuple[Choice, ...]:
        """As if nothing had been tried."""
        del memory
        return self._policy.rank(state, directions, Memory(), advice, incumbent, seed=seed)


def _create(context: SearchContext) -> SearchPolicy:
    return GoalOnlyPolicy(frozenset(context.config.mechanisms))


POLICY = SearchFactory(create=_create)
