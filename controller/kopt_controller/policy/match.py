"""The default policy: how well a direction fits, times what it may still win.

What it may win starts from the direction's prior and moves to the mean of what rounds in that
direction have won, one round weighing as much as the prior. A candidate that was faster at a
gate and waits for a sweep counts for what it showed there.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..directions import Direction
from ..memory import Memory
from ..result import Choice
from ..state import State
from ..supervisor import Advice

__all__ = ["POLICY", "MatchPolicy"]


class MatchPolicy:
    """Match with the focused signature times expected gain."""

    name = "match"

    def rank(
        self,
        state: State,
        directions: Mapping[str, Direction],
        memory: Memory,
        advice: Advice,
        incumbent: str,
    ) -> tuple[Choice, ...]:
        """Directions with a match above zero that are not blocked, best first."""
        choices = []
        for direction in directions.values():
            match = direction.match(state.focus)
            if match.score <= 0 or direction.id in advice.blocked:
                continue
            rounds = memory.along(direction.id)
            gain = (direction.prior_gain + sum(r.gain for r in rounds)) / (1 + len(rounds))
            waiting = memory.pending(incumbent, direction.id)
            if waiting:
                gain = max(gain, 1 - (waiting[0].ratio or 1.0))
            tried = f"; tried {len(rounds)} times" if rounds else ""
            choices.append(
                Choice(
                    id=direction.id,
                    title=direction.title,
                    score=match.score * gain,
                    reason=f"{match.reason}{tried}",
                    expected_effect=direction.expected_effect,
                    levers=direction.levers,
                )
            )
        return tuple(sorted(choices, key=lambda c: (-c.score, c.id)))


POLICY = MatchPolicy()
