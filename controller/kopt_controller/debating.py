"""A debate of two before a person is asked: which direction next.

Each side first says what it would do without knowing the other's mind, then once more knowing it.
Where both would take the same direction in the end, the next round takes it; where they would
not, a person is asked and finds both arguments in the record. Nothing else follows from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.ledger import Ledger, recorded

from .agents import Question
from .asking import Answering
from .costs import Usage
from .directions import Direction
from .memory import Memory
from .result import Debate, Position
from .state import State

__all__ = ["Motion", "debate"]

_SHAPE: Mapping[str, Any] = {
    "type": "object",
    "properties": {"direction": {"type": "string"}, "argument": {"type": "string"}},
    "required": ["direction", "argument"],
    "additionalProperties": False,
}
LAST_ROUNDS = 8
"""That both sides are told of."""


class Motion(NamedTuple):
    """What is debated."""

    why: str
    """Why a person would be asked."""
    state: State
    memory: Memory
    directions: Mapping[str, Direction]
    """That may be taken."""


def debate(sides: Sequence[Answering], motion: Motion, ledger: Ledger) -> Debate:
    """Both sides, twice; taken once.

    Args:
        sides: Two.
        motion: What it is about.
        ledger: Of the round.
    """

    def hold() -> dict[str, Any]:
        uses: list[Usage] = []
        opening = [
            _say(side, _prompt(motion, None), motion, ledger.scoped(f"debate/{i}/opening"), uses)
            for i, side in enumerate(sides)
        ]
        closing = [
            _say(
                side,
                _prompt(motion, opening[1 - i]),
                motion,
                ledger.scoped(f"debate/{i}/closing"),
                uses,
            )
            for i, side in enumerate(sides)
        ]
        ends = {position.direction for position in closing}
        return Debate(
            opening=tuple(opening),
            closing=tuple(closing),
            agreed=ends.pop() if len(ends) == 1 else None,
            usage=tuple(uses),
        ).model_dump(mode="json")

    return Debate.model_validate(recorded(ledger, "debate", hold))


def _say(
    side: Answering, prompt: str, motion: Motion, ledger: Ledger, uses: list[Usage]
) -> Position:
    """A position; a direction that there is not is none."""
    answer = side.ask(Question(prompt=prompt, role="debater", shape=dict(_SHAPE)), ledger)
    uses += answer.usage
    data = answer.data or {}
    direction = data.get("direction")
    argument = data.get("argument")
    return Position(
        by=side.name,
        direction=direction if direction in motion.directions else None,
        argument=argument if isinstance(argument, str) else f"no answer ({answer.ending})",
    )


def _prompt(motion: Motion, other: Position | None) -> str:
    focus = motion.state.focus
    rounds = [
        {
            "direction": past.direction,
            "decision": past.label,
            "ratio": past.ratio,
            "interval": past.ci,
            "candidates": [
                f"{trial.technique or 'a change'} {trial.outcome}" for trial in past.trials
            ],
        }
        for past in motion.memory.rounds[-LAST_ROUNDS:]
    ]
    offered = {
        each.id: f"{each.title}: {each.expected_effect}" for each in motion.directions.values()
    }
    lines = [
        "A search for a faster kernel has come to a halt. Choose what to try next.",
        f"Why it halts: {motion.why}",
        f"Most can be won in {focus.regime}, limited by {focus.bottleneck} (from {focus.basis}).",
        f"Directions that there are: {json.dumps(offered, indent=1)}",
        f"What was tried, measured by a harness: {json.dumps(rounds, indent=1)}",
    ]
    if other is not None:
        lines += [
            "Another engineer, who has seen the same, would take "
            f"{other.direction!r}, and says: {other.argument}",
            "Say where that is wrong, or why it is right. Change your mind where you should.",
        ]
    lines.append("Answer with the id of one direction and an argument from the evidence.")
    return "\n".join(lines) + "\n"
