"""A plan before a round and a summary after it, in words: what planner and summariser say.

An agent that answers in words is asked; for the others the plan is what is known without asking:
from which member to start, and what its direction is for. Neither decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kopt_harness.ledger import Ledger

from .agents import Answer, Question
from .asking import Answering
from .directions import Direction
from .population import Member, Population

__all__ = ["Planned", "plan_of", "summary_of", "told"]

INSPIRATIONS = 3
"""Members beside the parent that a planner is told of."""
LONGEST = 4000
"""Characters of a plan or a summary that are kept."""

_SHAPE: Mapping[str, Any] = {
    "type": "object",
    "properties": {"direction": {"type": "string"}, "plan": {"type": "string"}},
    "required": ["direction", "plan"],
    "additionalProperties": False,
}

Planned = tuple[str | None, str, Answer | None]
"""Direction that is asked for, plan, and the answer that they are from."""


def plan_of(
    writer: Answering | None,
    parent: Member | None,
    population: Population,
    directions: Mapping[str, Direction],
    ledger: Ledger,
    *,
    incumbent: str,
) -> Planned:
    """What a round is to do.

    Args:
        writer: The planner; None: nobody is asked.
        parent: From which the round starts; None: from the incumbent.
        population: Before the round.
        directions: That may be taken.
        ledger: Of this call.
        incumbent: Name of what must be beaten.
    """
    name = incumbent if parent is None else parent.name
    start = f"Start from {name}, whose source you have."
    if name != incumbent:
        start += f" What must be beaten is {incumbent}, which is another one."
    if writer is None:
        return None, start, None
    answer = writer.ask(
        Question(
            prompt=_plan_prompt(parent, population, directions), role="planner", shape=dict(_SHAPE)
        ),
        ledger,
    )
    data = answer.data or {}
    direction, plan = data.get("direction"), data.get("plan")
    known = direction if isinstance(direction, str) and direction in directions else None
    return known, f"{start}\n{plan}"[:LONGEST] if isinstance(plan, str) else start, answer


def summary_of(
    writer: Answering | None, members: Sequence[Member], direction: str, ledger: Ledger
) -> tuple[str, Answer | None]:
    """What a round has shown, for those who come after.

    Args:
        writer: The summariser; None: nobody is asked.
        members: Judged in the round.
        direction: Of the round.
        ledger: Of this call.
    """
    told_of = "; ".join(told(member) for member in members) or "nothing was judged"
    plain = f"{direction}: {told_of}"
    if writer is None or not members:
        return plain, None
    lines = [
        "Sum up one iteration of a search for a faster kernel in at most five sentences: what was",
        "tried, what came of it, why, and what follows. The figures are a harness's; invent none.",
        f"Direction: {direction}",
        f"Plan: {members[0].plan}",
        f"Candidates: {told_of}",
    ]
    answer = writer.ask(Question(prompt="\n".join(lines) + "\n", role="summariser"), ledger)
    return answer.text.strip()[:LONGEST] or plain, answer


def told(member: Member) -> str:
    """A member and what came of it, in one clause."""
    if member.ratio is None:
        return f"{member.name} {member.verdict or 'was not judged'} ({member.detail})"
    return f"{member.name} took {member.ratio:.3f} of its incumbent's time ({member.detail})"


def _plan_prompt(
    parent: Member | None, population: Population, directions: Mapping[str, Direction]
) -> str:
    others = sorted(population.members.values(), key=lambda m: (-m.score, m.id))
    inspirations = [m for m in others if parent is None or m.id != parent.id][:INSPIRATIONS]
    offered = {each.id: f"{each.title}: {each.expected_effect}" for each in directions.values()}
    lines = [
        "Plan the next step of a search for a faster kernel. Another agent carries it out; a",
        "harness judges the result. Score is the speed over the first incumbent, 0 is wrong.",
        f"Parent: {_told(parent)}",
        f"Others: {json.dumps([_told(each) for each in inspirations], indent=1)}",
        f"Directions that there are: {json.dumps(offered, indent=1)}",
        "Answer with the id of one direction and a plan of at most ten sentences.",
    ]
    return "\n".join(lines) + "\n"


def _told(member: Member | None) -> str:
    if member is None:
        return "the incumbent; nothing is known of it"
    return f"{member.name}, score {member.score:.3f}: {member.summary or told(member)}"
