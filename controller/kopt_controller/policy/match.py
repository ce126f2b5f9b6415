"""The default policy: how well a direction fits, times what it may still win.

The score of a direction is a product of numbers that are all recorded: the match with a
regime, the share of that regime in all time, its headroom over the floor, the gain that
the direction's prior and memory let expect, and a bounded bonus for what was tried little. The
regime is the one in which the product is largest. What is not known counts as 1, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod, sqrt

from ..directions import Direction
from ..memory import Memory, RoundMemory
from ..result import Choice, Factor
from ..state import Signature, State
from ..supervisor import Advice

__all__ = ["EXPLORATION_MAX", "POLICY", "WIDENED_MAX", "MatchPolicy"]

EXPLORATION_MAX = 1.25
"""Bonus of a direction that was never tried; it falls to 1 with the rounds. So what is chosen
is never worse than the best known by more than this factor."""
WIDENED_MAX = 2.0
"""The same where the supervisor asks for a wider search."""
LEAST_HEADROOM = 0.02
"""A floor is a model: nothing is so near to it that no gain at all can be expected."""
ELSEWHERE = 0.5
"""Weight of a round that worked on another regime, or started from another bottleneck."""
JOINT = 0.5
"""Part of that weight where more was changed than the levers of the direction: what won is not
known."""


class MatchPolicy:
    """Match times expected gain times what memory says."""

    name = "match"

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
        """Directions with a match above zero that are not blocked, best first.

        What a person asked for comes before everything else. The seed orders equals.
        """
        choices = [
            _choice(direction, state, memory, advice, incumbent)
            for direction in directions.values()
            if direction.id not in advice.blocked
        ]
        fitting = [choice for choice in choices if choice is not None]
        order = {name: position for position, name in enumerate(advice.urged)}
        return tuple(
            sorted(
                fitting,
                key=lambda c: (order.get(c.id, len(order)), -c.score, _lot(seed, c.id), c.id),
            )
        )


def _choice(
    direction: Direction, state: State, memory: Memory, advice: Advice, incumbent: str
) -> Choice | None:
    found = [
        (_regime_factors(direction, signature), signature)
        for signature in (state.focus, *state.regimes)
    ]
    matching = [(factors, signature) for factors, signature in found if factors[0].value > 0]
    if not matching:
        return None
    factors, signature = max(matching, key=lambda each: prod(f.value for f in each[0]))
    history = (
        _gain(direction, signature, memory, incumbent),
        _exploration(direction, memory, advice),
    )
    urged = "; it was asked for" if direction.id in advice.urged else ""
    reason = "; ".join([factors[0].reason, *(factor.reason for factor in history)])
    return Choice(
        id=direction.id,
        title=direction.title,
        score=prod(factor.value for factor in (*factors, *history)),
        reason=reason + urged,
        expected_effect=direction.expected_effect,
        levers=direction.levers,
        regime=signature.regime,
        factors=(*factors, *history),
    )


def _regime_factors(direction: Direction, signature: Signature) -> tuple[Factor, ...]:
    match = direction.match(signature)
    share = signature.time_share
    headroom, why = _headroom(signature)
    return (
        Factor(name="match", value=match.score, reason=match.reason),
        Factor(
            name="share",
            value=1.0 if share is None else share,
            reason="the time of a regime is not known"
            if share is None
            else f"{signature.regime} is {share:.0%} of the time",
        ),
        Factor(name="headroom", value=headroom, reason=why),
    )


def _headroom(signature: Signature) -> tuple[float, str]:
    """By the floor; where that is not known, by what the profiler's counters leave."""
    distance = signature.distance_to_floor
    if distance is not None:
        headroom = max(LEAST_HEADROOM, 1 - 1 / max(distance, 1.0))
        return headroom, f"{distance:.2f} times its floor"
    if signature.headroom is not None:
        headroom = max(LEAST_HEADROOM, signature.headroom)
        return headroom, f"{signature.headroom:.0%} is not used, by the profile"
    return 1.0, "the floor is not known"


def _gain(direction: Direction, signature: Signature, memory: Memory, incumbent: str) -> Factor:
    """The prior, moved to the weighted mean of what rounds won; a round weighs as the prior."""
    rounds = memory.along(direction.id)
    weights = [_weight(past, signature) for past in rounds]
    won = sum(weight * past.gain for weight, past in zip(weights, rounds, strict=True))
    gain = (direction.prior_gain + won) / (1 + sum(weights))
    reason = f"prior {direction.prior_gain:.0%}"
    if rounds:
        times = "once" if len(rounds) == 1 else f"{len(rounds)} times"
        moved = sum(past.gain > 0 for past in rounds)
        reason = f"tried {times}, moved the incumbent {moved}, so {gain:.1%} ({reason})"
    waiting = memory.pending(incumbent, direction.id)
    shown = 1 - (waiting[0].ratio or 1.0) if waiting else 0.0
    if shown > gain:
        gain, reason = shown, f"{waiting[0].name} won {shown:.1%} at a gate and waits for a sweep"
    return Factor(name="gain", value=gain, reason=reason)


def _weight(past: RoundMemory, signature: Signature) -> float:
    """How much a round says of its direction, here and now; the prior weighs 1."""
    is_here = (past.regime, past.bottleneck) == (signature.regime, signature.bottleneck)
    return (1.0 if is_here else ELSEWHERE) * (JOINT if past.is_joint else 1.0)


def _exploration(direction: Direction, memory: Memory, advice: Advice) -> Factor:
    highest = WIDENED_MAX if advice.widen else EXPLORATION_MAX
    count = len(memory.along(direction.id))
    value = 1 + (highest - 1) / sqrt(1 + count)
    return Factor(
        name="exploration", value=value, reason="never tried" if not count else f"tried {count}"
    )


def _lot(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


POLICY = MatchPolicy()
