"""One direction for a round: the best for which the agent has something to measure.

The policy orders the directions that fit; what it left out is recorded with the reason. A
direction without candidates is passed over, so that a round is not spent on nothing, and
exactly one is worked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kopt_harness.errors import NotFoundError
from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import Solution
from kopt_harness.targets import get_target

from .agents import Proposal, Proposals, RoundBrief, agent_names
from .agents.writing import harmless, harmless_all
from .directions import Direction, load_directions
from .duplicates import refusal_of
from .result import Choice, Ranked, Refusal, Standing
from .shown import counted
from .state import State
from .steering import Steer, Steering, fold
from .supervisor import Advice
from .world import SolutionStore, Turn, World

ASK_AGAIN = 2
"""How often an agent is asked once more for a direction, where all it had was refused."""
MOST_VAIN = 3
"""Paid calls of a round that leave nothing but what is known or refused; then no more are made."""
_MOST_TOLD = 8
"""Refusals that an agent is told of, the newest."""

__all__ = [
    "NO_DIRECTION",
    "Chosen",
    "catalogue",
    "check_ladder",
    "choose",
    "seated",
    "steering_of",
    "urged_of",
]

NO_DIRECTION = Choice(
    id="none", title="No direction", score=0.0, reason="every direction is blocked or excluded"
)


class Chosen(NamedTuple):
    """The direction of a round, what was proposed for it, and how it came to that."""

    direction: Choice
    proposals: Proposals
    ranking: tuple[Ranked, ...]
    refused: tuple[Refusal, ...]


def steering_of(world: World, ledger: Ledger) -> Steering:
    """What people have said until a round begins; taken into the journal with it.

    Args:
        world: The campaign.
        ledger: Of the round.
    """

    def read() -> dict[str, Any]:
        return {"steers": [steer.model_dump(mode="json") for steer in world.steers()]}

    found = recorded(ledger, "steer", read)
    return fold(Steer.model_validate(steer) for steer in found["steers"])


def urged_of(ledger: Ledger, urged: tuple[str, ...]) -> tuple[str, ...]:
    """Directions that the last round has asked for; kept with the round that takes them.

    Args:
        ledger: Of the round.
        urged: By the round before; a round that is run again has them from its record.
    """
    kept = ledger.get("urged")
    if kept is None and urged:
        kept = recorded(ledger, "urged", lambda: {"directions": list(urged)})
    return () if kept is None else tuple(kept["directions"])


def seated(world: World, turn: Turn) -> World:
    """The campaign with the agent that a person, or else the ladder, has asked for."""
    wanted = turn.steering.agent or _of_rung(turn.rung, "agent")
    if wanted is None or world.seat is None or wanted == world.agent.name:
        return world
    seat = world.seat(wanted)
    return replace(world, agent=seat.agent, mode=seat.mode)


def check_ladder(ladder: Sequence[str]) -> None:
    """Refuses a rung that nothing could follow, before the campaign and not on its plateau.

    Raises:
        NotFoundError: If an agent, a direction or a language does not exist.
    """
    directions = load_directions()
    known = {
        "recommend": set(directions),
        "agent": set(agent_names()),
        "language": {name for each in directions.values() for name in each.languages},
    }
    for rung in ladder:
        kind, _, value = rung.partition(":")
        if kind in known and value not in known[kind]:
            raise NotFoundError(
                f"the rung {rung!r} of the ladder names nothing that there is",
                hint=f"{kind} is one of {', '.join(sorted(known[kind]))}",
            )


def _of_rung(rung: str | None, kind: str) -> str | None:
    what, _, value = (rung or "").partition(":")
    return value if what == kind else None


def catalogue(world: World, turn: Turn) -> Mapping[str, Direction]:
    """What is for the target, in the language that was asked for.

    Args:
        world: The campaign.
        turn: The round.
    """
    kind = get_target(world.target).kind
    known = {
        name: direction
        for name, direction in world.directions.items()
        if direction.is_for(world.target, kind)
    }
    language = turn.steering.language or _of_rung(turn.rung, "language")
    if language is None:
        return known
    return {
        name: direction.model_copy(update={"languages": (language,)})
        for name, direction in known.items()
        if language in direction.languages
    }


def choose(world: World, turn: Turn, state: State, advice: Advice) -> Chosen:
    """The first direction, in the order of the policy, for which the agent has candidates.

    Args:
        world: The campaign.
        turn: The round; proposals go through its ledger.
        state: Of the incumbent.
        advice: Of the supervisor.
    """
    directions = catalogue(world, turn)
    choices = world.policy.rank(
        state,
        directions,
        turn.memory,
        advice,
        turn.incumbent.sha256,
        seed=world.search_seed + turn.number,
    )
    notes: dict[str, None] = {}
    standings: dict[str, Standing] = {}
    vain = _Vain()
    unusable = ""
    for choice in choices:
        asked = _ask(world, turn, _brief(world, turn, state, directions[choice.id]), vain)
        notes |= dict.fromkeys(asked.notes)
        standings[choice.id] = asked.standing
        unusable = unusable or asked.unusable
        if asked.candidates or asked.is_broken or vain.is_enough:
            break
    chosen = next((c for c in choices if standings.get(c.id) == "chosen"), None)
    return Chosen(
        chosen or (choices[0] if choices else NO_DIRECTION),
        Proposals(asked.candidates, tuple(notes))
        if chosen is not None
        else Proposals((), tuple(notes), unusable=unusable),
        _ranking(_Question(world, state, advice, directions, choices), standings),
        tuple(vain.refused),
    )


@dataclass
class _Vain:
    """What the calls of a round have left that nobody needs to measure."""

    refused: list[Refusal] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """Why, for whoever is asked next."""
    calls: int = 0
    """Paid ones that left nothing else."""

    @property
    def is_enough(self) -> bool:
        """Whether another call would only cost the same for the same."""
        return self.calls >= MOST_VAIN

    def instructions(self, given: str) -> str:
        """Instructions of a call, with what was refused."""
        if not self.told:
            return given
        lines = [f"- {each}" for each in dict.fromkeys(self.told[-_MOST_TOLD:])]
        head = "What was left before in this round was not taken. Do not leave it once more:"
        return "\n".join([*([given, ""] if given else []), head, "", *lines])


class _Question(NamedTuple):
    """Everything that the choice was made from, and the order that the policy gave."""

    world: World
    state: State
    advice: Advice
    offered: Mapping[str, Direction]
    choices: tuple[Choice, ...]


class _Asked(NamedTuple):
    candidates: tuple[Proposal, ...]
    notes: tuple[str, ...]
    standing: Standing
    unusable: str = ""
    is_broken: bool = False


def _ask(world: World, turn: Turn, brief: RoundBrief, vain: _Vain) -> _Asked:
    """What the agent has for one direction that was not rejected before; adds to ``vain``.

    Where everything was refused it is asked again, knowing what was and why, a few times.
    """
    notes: list[str] = []
    before = len(vain.refused)
    for attempt in range(1 + ASK_AGAIN):
        known = turn.memory.refusing(each.sha256 for each in vain.refused)
        key = f"proposals/{brief.direction.id}" + (f"/{attempt}" if attempt else "")
        call = key.removeprefix("proposals/")
        told = vain.instructions(brief.instructions)
        ledger = turn.ledger.scoped(f"agent/{call}")
        asked = brief._replace(memory=known, ledger=ledger, instructions=told)
        proposals, is_paid = _propose(world, turn.ledger, key, asked)
        notes += proposals.notes
        vain.told += proposals.turned_down
        kept = []
        for proposal in proposals.candidates:
            found = _refusal(world, turn, proposal)
            if found is None:
                kept.append(proposal)
            else:
                vain.refused.append(found)
                vain.told.append(found.detail)
                notes.append(found.detail)
        if kept or not (proposals.candidates or proposals.turned_down):
            break
        vain.calls += is_paid
        if vain.is_enough:
            notes.append(f"{counted(vain.calls, 'call')} left nothing new: no more are made")
        if vain.is_enough or not proposals.candidates:
            break
    standing: Standing = "chosen" if kept else "refused" if len(vain.refused) > before else "empty"
    return _Asked(
        tuple(kept), tuple(notes), standing, proposals.unusable, proposals.is_broken and not kept
    )


def _refusal(world: World, turn: Turn, proposal: Proposal) -> Refusal | None:
    if not world.refuse_duplicates:
        return None
    return refusal_of(
        proposal.solution,
        turn.memory,
        world.solutions.get,
        family=proposal.family,
        settings=proposal.settings,
    )


def _brief(world: World, turn: Turn, state: State, direction: Direction) -> RoundBrief:
    return RoundBrief(
        definition=world.definition,
        target=world.target,
        round=turn.number,
        state=state,
        direction=direction,
        incumbent=turn.parent or turn.incumbent,
        memory=turn.memory,
        limit=world.max_candidates,
        seed=world.search_seed,
        steering=turn.steering,
        instructions=turn.instructions,
        left=None if world.meter is None else world.meter.left,
    )


def _ranking(question: _Question, standings: Mapping[str, Standing]) -> tuple[Ranked, ...]:
    """In the order of the policy, then what it left out, by id."""
    ranked = [
        Ranked(
            id=choice.id,
            title=choice.title,
            standing=standings.get(choice.id, "open"),
            score=choice.score,
            regime=choice.regime,
            factors=choice.factors,
            reason=choice.reason,
        )
        for choice in question.choices
    ]
    left_out = sorted(set(question.world.directions) - {each.id for each in ranked})
    return (*ranked, *(_left_out(question, name) for name in left_out))


def _left_out(question: _Question, name: str) -> Ranked:
    direction = question.world.directions[name]
    blocked = question.advice.blocked.get(name)
    excluded = direction.match(question.state.focus).reason
    if name not in question.offered:
        target = get_target(question.world.target)
        is_for = direction.is_for(target.name, target.kind)
        excluded = "not in the language asked for" if is_for else f"not for {target.name}"
    return Ranked(
        id=name,
        title=direction.title,
        standing="excluded" if blocked is None else "blocked",
        score=0.0,
        reason=excluded if blocked is None else blocked,
    )


def _propose(world: World, ledger: Ledger, key: str, brief: RoundBrief) -> tuple[Proposals, bool]:
    """What the agent proposed, and whether that was paid for.

    The sources are in the archive, the journal has their hashes.
    """

    def ask() -> dict[str, Any]:
        if world.meter is not None:
            world.meter.check()
        proposals = world.agent.propose(brief)
        shown = [_shown(proposal.solution) for proposal in proposals.candidates]
        for solution in shown:
            world.solutions.put(solution)
        candidates = [
            {
                "sha256": solution.sha256,
                "name": solution.name,
                "rationale": proposal.rationale,
                "family": proposal.family,
                "settings": proposal.settings,
                "technique": proposal.technique,
                "attribution": proposal.attribution,
            }
            for solution, proposal in zip(shown, proposals.candidates, strict=True)
        ]
        found: dict[str, Any] = {"candidates": candidates, "notes": list(proposals.notes)}
        if proposals.turned_down:
            found["turned_down"] = list(proposals.turned_down)
        if proposals.usage:
            found["is_paid"] = True
        if proposals.unusable:
            found |= {"unusable": proposals.unusable, "broken": proposals.is_broken}
        words: dict[str, Any] = harmless_all(found)
        return words

    found = recorded(ledger, key, ask)
    proposals = Proposals(
        tuple(_restore(world.solutions, candidate) for candidate in found["candidates"]),
        tuple(found["notes"]),
        unusable=found.get("unusable", ""),
        is_broken=found.get("broken", False),
        turned_down=tuple(found.get("turned_down", ())),
    )
    return proposals, found.get("is_paid", False)


def _shown(solution: Solution) -> Solution:
    """The solution with words that may be shown, whoever has written them; no hash has them."""
    words = {name: harmless(getattr(solution, name)) for name in ("name", "author", "description")}
    return solution.model_copy(update=words)


def _restore(solutions: SolutionStore, candidate: dict[str, Any]) -> Proposal:
    """Content is kept once, under the name that it first had; here it has the proposal's."""
    kept = solutions.get(candidate["sha256"])
    return Proposal(
        kept.model_copy(update={"name": candidate["name"]}),
        candidate["rationale"],
        candidate["family"],
        candidate["settings"],
        candidate.get("technique", ""),
        candidate.get("attribution"),
    )
