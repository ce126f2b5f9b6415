"""Watches the trajectory: stall, exhaustion, cycle, regression, plateau, diminishing returns.

The rules judge intervals, not the raw bests: a round is worse where its interval says so, and
a gain that noise explains ends no plateau. Only rounds since the incumbent last moved count
against a direction: with another incumbent the same direction may pay again. A round in which
nothing could be judged (no candidates, or failures of the machine) blocks nothing. One whose
promotion waits for a person has succeeded. What the supervisor blocks, a policy does not choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kopt_harness.schema import Verdict

from .memory import Memory, RoundMemory, Trial
from .result import Action, Signal
from .steering import Steering

__all__ = ["Advice", "rung_of", "spared", "steered", "supervise", "urging"]

STALL_ROUNDS = 3
"""Rounds in a row in which candidates were judged and none passed the gate."""
EXHAUSTED_ROUNDS = 2
"""Rounds in a row in which nobody had anything to propose."""
PLATEAU_ROUNDS = 4
"""Rounds in a row without a promotion, in each of which a worthwhile gain is excluded."""
UNDECIDED_ROUNDS = 6
"""The same where intervals are too wide to exclude one: measuring on does not help either."""
CYCLE_ROUNDS = 2
"""Rounds in a row in one direction and state that moved nothing."""
CYCLE_PERIODS = (2, 3)
"""Longer cycles: so many directions and states, twice over, that moved nothing."""
REGRESSION_ROUNDS = 2
"""Rounds in one direction in which every candidate was surely slower, or wrong."""
SMALL_GAIN = 0.03
"""A gain below this share of the time is a small one."""
DIMINISHING_PROMOTIONS = 3
"""Promotions in a row, each winning less than the one before and the last a small one."""

_PERSONS = frozenset({"stall", "exhausted", "plateau", "diminishing-returns"})
"""Signals that call for more than another direction."""
_NOT_JUDGED = frozenset({Verdict.INFRA, Verdict.INVALID})


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
    """Directions that a person, or the ladder, has asked for, the first first."""
    widen: bool = False
    """Whether what was tried little should get more weight than usual."""
    actions: tuple[Action, ...] = ()
    """The consequences of all this, for the record."""


def supervise(memory: Memory) -> Advice:
    """The advice for the next round."""
    signals = _signals(memory)
    blocked = {name: signal.detail for signal in signals for name in signal.directions}
    gains: dict[str, float] = {}
    for past in memory.rounds:
        if past.gain > 0:
            gains[past.direction] = max(gains.get(past.direction, 0.0), past.gain)
    recommended = tuple(sorted((d for d in gains if d not in blocked), key=lambda d: -gains[d]))
    kinds = [signal.kind for signal in signals]
    widen = any(kind in _PERSONS for kind in kinds)
    return Advice(
        signals=signals,
        blocked=blocked,
        recommended=recommended,
        ask_person=widen,
        widen=widen,
        actions=_actions(signals, recommended),
    )


def _signals(memory: Memory) -> tuple[Signal, ...]:
    recent = tuple(past for past in memory.since_promotion() if _judged(past))
    found = (
        _stall(recent),
        _exhausted(memory),
        _cycle(recent),
        *_regressions(recent),
        _plateau(recent),
        _diminishing(memory),
    )
    return tuple(signal for signal in found if signal is not None)


def _actions(signals: Sequence[Signal], recommended: tuple[str, ...]) -> tuple[Action, ...]:
    found: list[Action] = []
    for signal in signals:
        if signal.directions:
            found.append(Action(kind="block", directions=signal.directions, because=signal.kind))
        if signal.kind in _PERSONS:
            found.append(Action(kind="widen", because=signal.kind))
            found.append(Action(kind="ask", because=signal.kind))
            if recommended:
                found.append(Action(kind="recommend", directions=recommended, because=signal.kind))
    return tuple(found)


def steered(advice: Advice, steering: Steering, rung: str | None = None) -> Advice:
    """The advice with what people said, and with a rung of the plateau ladder.

    A person's word is above the supervisor's, in both ways.

    Args:
        advice: Of the history.
        steering: Of the run.
        rung: ``widen``, ``unblock``, ``recommend:<direction>``; others change nothing here.
    """
    blocked = {} if rung == "unblock" else advice.blocked
    blocked = {name: why for name, why in blocked.items() if name not in steering.urged}
    urged = steering.urged
    if rung is not None and rung.startswith("recommend:"):
        direction = rung.removeprefix("recommend:")
        urged = (*urged, *(() if direction in urged else (direction,)))
        blocked.pop(direction, None)
    return advice._replace(
        blocked=blocked | steering.blocked,
        urged=tuple(name for name in urged if name not in steering.blocked),
        widen=advice.widen or rung == "widen",
    )


def urging(advice: Advice, directions: Sequence[str]) -> Advice:
    """The advice with directions that a policy or a debate asks for: after a person's.

    Args:
        advice: With what people said.
        directions: Lose the supervisor's block.
    """
    more = tuple(name for name in directions if name not in advice.urged)
    blocked = {name: why for name, why in advice.blocked.items() if name not in directions}
    return advice._replace(urged=(*advice.urged, *more), blocked=blocked)


def spared(actions: Sequence[Action], agreed: str | None) -> tuple[Action, ...]:
    """The actions after a debate: where it came to a direction, nobody is asked.

    Args:
        actions: Of the supervisor.
        agreed: The direction; null: none.
    """
    if agreed is None:
        return tuple(actions)
    kept = tuple(action for action in actions if action.kind != "ask")
    return (*kept, Action(kind="recommend", directions=(agreed,), because="debate"))


def rung_of(memory: Memory, ladder: Sequence[str]) -> str | None:
    """The rung of the plateau ladder that is due: one higher with each round that stays there.

    Args:
        memory: Of the definition on the target.
        ladder: As configured; its last rung stays.
    """
    height = 0
    count = len(memory.rounds)
    start = count - len(memory.since_promotion())
    for end in range(start, count + 1):
        seen = memory.model_copy(update={"rounds": memory.rounds[:end]})
        if any(signal.kind in _PERSONS for signal in _signals(seen)):
            height += 1
        else:
            height = 0
    return ladder[min(height, len(ladder)) - 1] if height and ladder else None


def _judged(past: RoundMemory) -> bool:
    return any(trial.verdict not in _NOT_JUDGED for trial in past.trials)


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
    for period in (1, *CYCLE_PERIODS):
        last = recent[-CYCLE_ROUNDS * period :]
        turns = [(past.direction, past.bottleneck, past.regime) for past in last]
        if len(last) < CYCLE_ROUNDS * period or turns[:period] != turns[period:]:
            continue
        if any(past.succeeded or _surely_faster(past) for past in last):
            continue
        names = tuple(dict.fromkeys(past.direction for past in last))
        what = "was chosen" if period == 1 else "were chosen in turn"
        detail = f"{', '.join(names)} {what} {len(last)} times in a row and moved nothing"
        return Signal(kind="cycle", detail=detail, directions=names)
    return None


def _regressions(recent: tuple[RoundMemory, ...]) -> list[Signal]:
    worse: dict[str, int] = {}
    for past in recent:
        if all(_is_worse(trial) for trial in past.trials):
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


def _is_worse(trial: Trial) -> bool:
    if trial.verdict in _NOT_JUDGED:
        return False
    if trial.verdict is not Verdict.PASS:
        return True
    if trial.ci is not None:
        return trial.ci[0] > 1
    return trial.ratio is not None and trial.ratio > 1


def _surely_faster(past: RoundMemory) -> bool:
    """Whether the round found something that its interval says is faster."""
    return past.ci is not None and past.ci[1] < 1


def _plateau(recent: tuple[RoundMemory, ...]) -> Signal | None:
    for rounds, what in ((PLATEAU_ROUNDS, "excluded"), (UNDECIDED_ROUNDS, "undecided")):
        last = recent[-rounds:]
        passed = any(trial.passed for past in last for trial in past.trials)
        if len(last) < rounds or not passed or any(past.succeeded for past in last):
            continue
        if what == "excluded" and any(_may_have_gained(past) for past in last):
            continue
        return Signal(
            kind="plateau",
            detail=f"{len(last)} rounds without a promotion, a gain of {SMALL_GAIN:.0%} is {what}; "
            "another language, reference or direction is needed",
        )
    return None


def _may_have_gained(past: RoundMemory) -> bool:
    """Whether the interval leaves room for a worthwhile gain; without one, nothing is known."""
    return past.ci is not None and past.ci[0] < 1 - SMALL_GAIN


class _Gain(NamedTuple):
    low: float
    middle: float
    high: float


def _diminishing(memory: Memory) -> Signal | None:
    gains = [_gain(past) for past in memory.rounds if past.promoted][-DIMINISHING_PROMOTIONS:]
    falling = all(later.middle < earlier.middle for earlier, later in pairwise(gains))
    if len(gains) < DIMINISHING_PROMOTIONS or not falling:
        return None
    first, last = gains[0], gains[-1]
    if last.high >= SMALL_GAIN or last.high >= first.low:
        return None
    text = ", ".join(f"{gain.middle:.1%}" for gain in gains)
    return Signal(kind="diminishing-returns", detail=f"the last promotions won {text}")


def _gain(past: RoundMemory) -> _Gain:
    if past.ci is None:
        return _Gain(past.gain, past.gain, past.gain)
    return _Gain(1 - past.ci[1], past.gain, 1 - past.ci[0])
