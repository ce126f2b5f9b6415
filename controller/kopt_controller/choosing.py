"""One direction for a round: the best for which the agent has something to measure.

The policy orders the directions that fit; what it left out is recorded with the reason. A
direction without candidates is passed over, so that a round is not spent on nothing, and
exactly one is worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kopt_harness.ledger import Ledger, recorded

from .agents import Proposal, Proposals, RoundBrief
from .directions import Direction
from .result import Choice, Ranked
from .state import State
from .supervisor import Advice
from .world import SolutionStore, Turn, World

__all__ = ["NO_DIRECTION", "Chosen", "choose"]

NO_DIRECTION = Choice(
    id="none", title="No direction", score=0.0, reason="every direction is blocked or excluded"
)


class Chosen(NamedTuple):
    """The direction of a round, what was proposed for it, and how it came to that."""

    direction: Choice
    proposals: Proposals
    ranking: tuple[Ranked, ...]


def choose(world: World, turn: Turn, state: State, advice: Advice) -> Chosen:
    """The first direction, in the order of the policy, for which the agent has candidates.

    Args:
        world: The campaign.
        turn: The round; proposals go through its ledger.
        state: Of the incumbent.
        advice: Of the supervisor.
    """
    choices = world.policy.rank(
        state,
        world.directions,
        turn.memory,
        advice,
        turn.incumbent.sha256,
        seed=world.search_seed + turn.number,
    )
    notes: dict[str, None] = {}
    for position, choice in enumerate(choices):
        proposals = _propose(world, turn.ledger, _brief(world, turn, state, choice))
        notes |= dict.fromkeys(proposals.notes)
        if proposals.candidates:
            ranking = _ranking(world, state, advice, choices, position)
            return Chosen(choice, Proposals(proposals.candidates, tuple(notes)), ranking)
    first = choices[0] if choices else NO_DIRECTION
    ranking = _ranking(world, state, advice, choices, len(choices))
    return Chosen(first, Proposals((), tuple(notes)), ranking)


def _brief(world: World, turn: Turn, state: State, choice: Choice) -> RoundBrief:
    return RoundBrief(
        definition=world.definition,
        target=world.target,
        round=turn.number,
        state=state,
        direction=world.directions[choice.id],
        incumbent=turn.incumbent,
        memory=turn.memory,
        limit=world.max_candidates,
        seed=world.search_seed,
    )


def _ranking(
    world: World, state: State, advice: Advice, choices: Sequence[Choice], chosen: int
) -> tuple[Ranked, ...]:
    """In the order of the policy, then what it left out, by id."""
    ranked = [
        Ranked(
            id=choice.id,
            title=choice.title,
            standing="empty" if at < chosen else "chosen" if at == chosen else "open",
            score=choice.score,
            regime=choice.regime,
            factors=choice.factors,
            reason=choice.reason,
        )
        for at, choice in enumerate(choices)
    ]
    seen = {choice.id for choice in choices}
    left_out = [world.directions[name] for name in sorted(set(world.directions) - seen)]
    return (*ranked, *(_left_out(direction, state, advice) for direction in left_out))


def _left_out(direction: Direction, state: State, advice: Advice) -> Ranked:
    blocked = advice.blocked.get(direction.id)
    return Ranked(
        id=direction.id,
        title=direction.title,
        standing="excluded" if blocked is None else "blocked",
        score=0.0,
        reason=direction.match(state.focus).reason if blocked is None else blocked,
    )


def _propose(world: World, ledger: Ledger, brief: RoundBrief) -> Proposals:
    """What the agent proposed; the sources are in the archive, the journal has their hashes."""

    def ask() -> dict[str, Any]:
        proposals = world.agent.propose(brief)
        for proposal in proposals.candidates:
            world.solutions.put(proposal.solution)
        candidates = [
            {
                "sha256": proposal.solution.sha256,
                "name": proposal.solution.name,
                "rationale": proposal.rationale,
                "family": proposal.family,
                "settings": proposal.settings,
            }
            for proposal in proposals.candidates
        ]
        return {"candidates": candidates, "notes": list(proposals.notes)}

    found = recorded(ledger, f"proposals/{brief.direction.id}", ask)
    return Proposals(
        tuple(_restore(world.solutions, candidate) for candidate in found["candidates"]),
        tuple(found["notes"]),
    )


def _restore(solutions: SolutionStore, candidate: dict[str, Any]) -> Proposal:
    """Content is kept once, under the name that it first had; here it has the proposal's."""
    kept = solutions.get(candidate["sha256"])
    return Proposal(
        kept.model_copy(update={"name": candidate["name"]}),
        candidate["rationale"],
        candidate["family"],
        candidate["settings"],
    )
