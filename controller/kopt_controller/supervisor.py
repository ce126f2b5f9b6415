"""Watches the history: stalls, exhaustion, cycles, regressions, plateaus, diminishing returns.

Only rounds since the incumbent last moved count against a direction: with another incumbent
the same direction may pay again. A round without candidates has tried nothing: it is no
stall and blocks nothing, and several of them are a signal of their own. One whose promotion
waits for a person has succeeded. What the supervisor blocks, a policy does not choose.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from kopt_harness.schema import Verdict

from .memory import Memory, RoundMemory
from .result import Signal

__all__ = ["Advice", "supervise"]

STALL_ROUNDS = 3
"""Rounds in a row in which candidates were tried and none passed the gate."""
EXHAUSTED_ROUNDS = 2
"""Rounds in a row in which nobody had anything to propose."""
PLATEAU_ROUNDS = 4
"""Rounds in a row in which candidates passed and none was promoted."""
CYCLE_ROUNDS = 2
"""Rounds in a row in one direction that moved nothing."""
REGRESSION_ROUNDS = 2
"""Rounds in one direction in which every correct candidate was slower or none was correct."""
SMALL_GAIN = 0.03
"""A promotion that wins less than this share of the time is a small one."""
DIMINISHING_PROMOTIONS = 3
"""Promotions in a row, each winning less than the one before and the last a small one."""


class Advice(NamedTuple):
    """What the history asks for."""

    signals: tuple[Signal, ...]
    blocked: dict[str, str]
    """Direction id: why."""
    recommended: tuple[str, ...]
    """Directions that have moved the incumbent before, best first."""
    ask_person: bool
    """Whether a person should steer now."""
    urged: tuple[str, ...] = ()
    """Directions that a person has asked for, the first first."""
    widen: bool = False
    """Whether what was tried little should get more weight than usual."""


def supervise(memory: Memory) -> Advice:
    """The advice for the next round."""
    recent = tuple(past for past in memory.since_promotion() if past.trials)
    signals = [
        signal
        for signal in (
            _stall(recent),
            _exhausted(memory),
            _cycle(recent),
            *_regressions(recent),
            _plateau(recent),
            _diminishing(memory),
        )
        if signal is not None
    ]
    blocked = {name: signal.detail for signal in signals for name in signal.directions}
    gains: dict[str, float] = {}
    for past in memory.rounds:
        if past.gain > 0:
            gains[past.direction] = max(gains.get(past.direction, 0.0), past.gain)
    return Advice(
        signals=tuple(signals),
        blocked=blocked,
        recommended=tuple(sorted((d for d in gains if d not in blocked), key=lambda d: -gains[d])),
        ask_person=any(s.kind not in ("cycle", "regression") for s in signals),
    )


def _stall(recent: tuple[RoundMemory, ...]) -> Signal | None:
    last = recent[-STALL_ROUNDS:]
    if len(last) < STALL_ROUNDS or any(trial.passed for past in last for trial in past.trials):
        return None
    return Signal(kind="stall", detail=f"no candidate of the last {len(last)} rounds passed a gate")


def _exhausted(memory: Memory) -> Signal | None:
    last = memory.since_promotion()[-EXHAUSTED_ROUNDS:]
    if len(last) < EXHAUSTED_ROUNDS or any(past.trials for past in last):
        return None
    detail = f"nobody had anything to propose in the last {len(last)} rounds"
    return Signal(kind="exhausted", detail=detail)


def _cycle(recent: tuple[RoundMemory, ...]) -> Signal | None:
    last = recent[-CYCLE_ROUNDS:]
    directions = {past.direction for past in last}
    if len(last) < CYCLE_ROUNDS or len(directions) != 1 or any(p.succeeded for p in last):
        return None
    direction = directions.pop()
    return Signal(
        kind="cycle",
        detail=f"{direction} was chosen {len(last)} times in a row and moved nothing",
        directions=(direction,),
    )


def _regressions(recent: tuple[RoundMemory, ...]) -> list[Signal]:
    worse: dict[str, int] = {}
    for past in recent:
        if all(_is_worse(past, index) for index in range(len(past.trials))):
            worse[past.direction] = worse.get(past.direction, 0) + 1
    return [
        Signal(
            kind="regression",
            detail=f"every candidate of {count} rounds of {direction} was wrong or slower",
            directions=(direction,),
        )
        for direction, count in sorted(worse.items())
        if count >= REGRESSION_ROUNDS
    ]


def _is_worse(past: RoundMemory, index: int) -> bool:
    trial = past.trials[index]
    if trial.verdict in (Verdict.INFRA, Verdict.INVALID):
        return False
    return trial.verdict is not Verdict.PASS or (trial.ratio is not None and trial.ratio > 1)


def _plateau(recent: tuple[RoundMemory, ...]) -> Signal | None:
    last = recent[-PLATEAU_ROUNDS:]
    passed = any(trial.passed for past in last for trial in past.trials)
    if len(last) < PLATEAU_ROUNDS or not passed or any(past.succeeded for past in last):
        return None
    return Signal(
        kind="plateau",
        detail=f"{len(last)} rounds without a promotion; another language, reference or "
        "direction is needed",
    )


def _diminishing(memory: Memory) -> Signal | None:
    gains = [past.gain for past in memory.rounds if past.promoted][-DIMINISHING_PROMOTIONS:]
    falling = all(later < earlier for earlier, later in pairwise(gains))
    if len(gains) < DIMINISHING_PROMOTIONS or not falling or gains[-1] >= SMALL_GAIN:
        return None
    text = ", ".join(f"{gain:.1%}" for gain in gains)
    return Signal(kind="diminishing-returns", detail=f"the last promotions won {text}")
