"""The default agent: searches implementations and the knobs that they declare; offline.

For a direction it proposes, in this order: the fastest candidate of earlier rounds that never
had a fair sweep, implementations that were never measured (where the direction is served by
another implementation), changes together that each helped, settings that differ in the knobs that
pull the direction's levers, and only when nothing else is left, settings whose measurement was
undecided.

As long as nothing is known of an implementation, the direction's knobs are changed one at a time,
near values first, then in pairs. Afterwards other knobs may be turned along with them, and the
order is that of the improvement which all measurements together let expect (``effects.py``). A
setting serves a direction only where it turns a knob of it, and where that is expected to add to
what the others do; where none is worth an evaluation, the direction gets nothing. Each candidate
says whether more was turned than the direction's knobs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, product, zip_longest
from math import exp, prod
from typing import Any, NamedTuple

from kopt_harness.schema import Verdict
from kopt_harness.tunables import Tunable

from ..directions import Direction
from ..effects import Effects, Expected, observed_of
from ..memory import Memory, Trial
from ..result import Attribution
from ..space import Family, Point, Settings, locate
from .protocol import AgentContext, AgentFactory, Proposal, Proposals, RoundBrief

__all__ = ["AGENT", "KnobsAgent"]

MAX_PAIRS = 64
"""Pairs of changes that are tried blindly; their number grows with the square of the knobs."""
MAX_EXPECTED_PAIRS = 512
"""The same where measurements say what to expect of each, and only the best are tried."""
MAX_POINTS = 4096
"""Settings of an implementation that are all looked at; of more, those a few changes away."""
LEAST_EXPECTED = 0.003
"""Of the time: what is expected to win less is left to a direction that looks everywhere."""
LEAST_ANYWHERE = 0.0005
"""The same there: rather measure again what was undecided."""
MOST_GATES = 3
"""Of one setting against one incumbent; then its interval will not get narrower by measuring on."""
_DECIDED = frozenset({"dispatch", "regressions", "median", "p95", "worst-regime"})
"""Codes of sweeps that have shown how a candidate differs from size to size."""


class _Idea(NamedTuple):
    point: Point
    rationale: str
    technique: str


class KnobsAgent:
    """Walks through the search space, guided by the direction and by memory."""

    name = "knobs"

    def __init__(self, context: AgentContext) -> None:
        self._space = context.space

    def propose(self, brief: RoundBrief) -> Proposals:
        """New points first; measured, undecided ones if there is nothing new."""
        families = [f for f in self._space.families() if f.language in brief.direction.languages]
        home = locate(self._space, brief.incumbent)
        ideas = self._ideas(brief, families, home)
        seen = brief.memory.measured() | {brief.incumbent.sha256}
        candidates = self._take(_pending(brief, families), {brief.incumbent.sha256}, 1)
        candidates += self._take(ideas, seen, brief.limit - len(candidates))
        if not candidates and "*" in brief.direction.levers:
            known = {family.name for family in families}
            candidates = self._take(_undecided(brief, known), {brief.incumbent.sha256}, brief.limit)
            if not candidates:
                rest = self._ideas(brief, families, home, least=0.0)
                candidates = self._take(rest, seen, brief.limit)
        by_name = {family.name: family for family in families}
        return Proposals(
            tuple(
                each._replace(attribution=_attribution(brief.direction, by_name, home, each))
                for each in candidates
            )
        )

    def _take(
        self, ideas: Iterator[_Idea], seen: frozenset[str] | set[str], limit: int
    ) -> list[Proposal]:
        taken = set(seen)
        proposals: list[Proposal] = []
        for point, rationale, technique in ideas:
            if len(proposals) == limit:
                break
            solution = self._space.pack(point)
            if solution.sha256 not in taken:
                taken.add(solution.sha256)
                proposals.append(
                    Proposal(solution, rationale, point.family, point.settings, technique)
                )
        return proposals

    def _ideas(
        self,
        brief: RoundBrief,
        families: list[Family],
        home: Point | None,
        least: float | None = None,
    ) -> Iterator[_Idea]:
        by_name = {family.name: family for family in families}
        if brief.direction.rewrites:
            for family in families:
                point = Point(family.name, family.defaults())
                yield _Idea(point, f"{family.name} was never measured here", family.name)
        centres = [home] if home is not None and home.family in by_name else []
        if brief.direction.rewrites or not centres:
            centres += [
                _best_known(family, brief.memory)
                for family in families
                if home is None or family.name != home.family
            ]
        for centre in centres:
            yield from _combined(by_name[centre.family], centre, brief)
        walks = [self._walk(by_name[centre.family], centre, brief, least) for centre in centres]
        yield from (idea for turn in zip_longest(*walks) for idea in turn if idea is not None)

    def _walk(
        self, family: Family, centre: Point, brief: RoundBrief, least: float | None
    ) -> Iterator[_Idea]:
        """Settings of one implementation: by what is expected of them, once anything is known."""
        known = {
            self._space.pack(point).sha256: point.settings
            for point in (centre, Point(family.name, family.defaults()))
        }
        observed = observed_of(family.name, family.tunables, brief.memory, known)
        effects = Effects(family.tunables, tuple(observed))
        if effects.measured:
            if least is None:
                least = _least_of(brief)
            yield from _promising(family, centre, brief, effects, least)
        else:
            levers = brief.direction.levers
            yield from _neighbours(family, centre, levers, brief.seed + brief.round)
            yield from _pairs(family, centre, levers)


def _best_known(family: Family, memory: Memory) -> Point:
    """The fastest setting of the last round that measured the family; else its defaults."""
    for past in reversed(memory.rounds):
        found = [t for t in past.trials if t.family == family.name and _is_valid(t, family)]
        if found:
            best = min(found, key=lambda t: (t.ratio is None, t.ratio or 0.0, t.sha256))
            return Point(family.name, dict(best.settings))
    return Point(family.name, family.defaults())


def _is_valid(trial: Trial, family: Family) -> bool:
    """Whether a remembered setting still exists: knobs and values may have changed since."""
    return trial.passed and all(
        name in trial.settings and trial.settings[name] in tunable.values
        for name, tunable in family.tunables.items()
    )


def _combined(family: Family, centre: Point, brief: RoundBrief) -> Iterator[_Idea]:
    """All changes together that each helped against the present incumbent, best first."""
    helped = [
        trial
        for past in brief.memory.rounds
        if past.incumbent == brief.incumbent.sha256
        for trial in past.trials
        if trial.family == family.name
        and _is_valid(trial, family)
        and trial.ratio is not None
        and trial.ratio < 1
    ]
    helped.sort(key=lambda t: (t.ratio or 0.0, t.sha256))
    settings: Settings = dict(centre.settings)
    changed: set[str] = set()
    for trial in helped:
        differs = {n for n, v in trial.settings.items() if v != centre.settings[n]}
        if differs and not differs & changed:
            settings |= {name: trial.settings[name] for name in differs}
            changed |= differs
    if len(changed) > 1 and changed & set(family.serving(brief.direction.levers)):
        names = ", ".join(sorted(changed))
        point = Point(family.name, settings)
        yield _Idea(point, f"changes of {names} helped one by one", "+".join(sorted(changed)))


def _least_of(brief: RoundBrief) -> float:
    """What must be expected of a setting; nothing where a person asked for the direction."""
    if brief.direction.id in brief.steering.urged:
        return 0.0
    return LEAST_ANYWHERE if "*" in brief.direction.levers else LEAST_EXPECTED


def _promising(
    family: Family, centre: Point, brief: RoundBrief, effects: Effects, least: float
) -> Iterator[_Idea]:
    """Settings by what they are expected to win, as long as that is at least so much."""
    levers = brief.direction.levers
    mine = set(family.serving(levers))
    home = centre.settings
    known = {_values(family, each) for each in effects.measured}
    points = [
        settings
        for settings in _reachable(family, home, mine, effects)
        if any(settings[name] != home[name] for name in mine)
        if _values(family, settings) not in known
    ]
    while points:
        wins = _wins(points, home, mine, effects)
        at = max(range(len(points)), key=lambda i: (wins[i], -i))
        if wins[at] < least:
            return
        settings = points.pop(at)
        yield _idea(family, centre, settings, mine, effects.expect([settings], home)[0])
        effects = effects.also(settings, home)


def _wins(points: list[Settings], home: Settings, mine: set[str], effects: Effects) -> list[float]:
    """The improvement that is expected of each; below 0 where the direction would add nothing.

    That is where the other changes alone let expect more: they are for another direction.
    """
    if not points:
        return []
    level = min(each.log_ratio for each in effects.expect(effects.measured, home))
    best = min(0.0, level)
    found = [each.improvement(best) for each in effects.expect(points, home)]
    if mine == set(home):
        return found
    without = [settings | {name: home[name] for name in mine} for settings in points]
    alone = [each.improvement(best) for each in effects.expect(without, home)]
    return [win if win >= rest else -1.0 for win, rest in zip(found, alone, strict=True)]


def _idea(
    family: Family, centre: Point, settings: Settings, mine: set[str], expected: Expected
) -> _Idea:
    changed = [name for name in family.tunables if settings[name] != centre.settings[name]]

    def said(names: list[str]) -> str:
        return ", ".join(f"{name} {centre.settings[name]} to {settings[name]}" for name in names)

    what = said([name for name in changed if name in mine])
    beside = said([name for name in changed if name not in mine])
    ratio, times = exp(expected.log_ratio), exp(expected.deviation)
    rationale = f"{what}; beside it {beside}" if beside else what
    rationale += f"; expected to take {ratio:.3f} of its time, within a factor of {times:.2f}"
    return _Idea(Point(family.name, settings), rationale, "+".join(sorted(changed)))


def _reachable(
    family: Family, centre: Settings, mine: set[str], effects: Effects
) -> list[Settings]:
    """All settings that there are; of very many, one or two changes from wherever is good."""
    if not mine:
        return []
    if prod(len(knob.values) for knob in family.tunables.values()) <= MAX_POINTS:
        values = product(*(knob.values for knob in family.tunables.values()))
        return [dict(zip(family.tunables, each, strict=True)) for each in values]
    found: dict[tuple[Any, ...], Settings] = {}
    for start in (centre, *_good(family, centre, effects)):
        steps = _steps(family, Point(family.name, start), ("*",))
        # What turns a knob of the direction comes first: pairs may be too many.
        steps.sort(key=lambda step: step.name not in mine)
        singles = [start | {step.name: step.value} for step in steps]
        pairs = [
            start | {a.name: a.value, b.name: b.value}
            for a, b in combinations(steps, 2)
            if a.name != b.name
        ]
        for settings in (start, *singles, *pairs[:MAX_EXPECTED_PAIRS]):
            found.setdefault(_values(family, settings), settings)
    return list(found.values())


def _values(family: Family, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings[name] for name in family.tunables)


def _good(family: Family, centre: Settings, effects: Effects) -> list[Settings]:
    """The best that was measured, and the best value of each knob together."""
    measured = effects.measured
    levels = effects.expect(measured, centre)
    best = measured[min(range(len(levels)), key=lambda i: levels[i].log_ratio)]
    together: Settings = dict(centre)
    for name, knob in family.tunables.items():
        known = [v for v in knob.values if any(each[name] == v for each in measured)]
        options = [dict(together) | {name: value} for value in known]
        if options:
            found = effects.expect(options, centre)
            together = options[min(range(len(options)), key=lambda i: found[i].log_ratio)]
    return [dict(best), together]


def _attribution(
    direction: Direction, families: Mapping[str, Family], home: Point | None, proposal: Proposal
) -> Attribution:
    """What the effect of a candidate over the incumbent can be put down to."""
    family = families[proposal.family or ""]
    if home is None or home.family != family.name:
        return "direction" if direction.rewrites else "joint"
    mine = family.serving(direction.levers)
    changed = [n for n, value in proposal.settings.items() if value != home.settings[n]]
    return "direction" if all(name in mine for name in changed) else "joint"


class _Step(NamedTuple):
    name: str
    value: int | float | str | bool


def _neighbours(
    family: Family, centre: Point, levers: tuple[str, ...], seed: int
) -> Iterator[_Idea]:
    """One knob changed, near values first; which knob comes first is left to the seed."""
    for step in _steps(family, centre, levers, seed):
        point = Point(family.name, centre.settings | {step.name: step.value})
        old = centre.settings[step.name]
        yield _Idea(point, f"{step.name} {old} to {step.value}", step.name)


def _steps(
    family: Family, centre: Point, levers: tuple[str, ...], seed: int | None = None
) -> list[_Step]:
    knobs = list(family.serving(levers).items())
    if seed is not None:
        # Python's own generator: its sequence for a given seed is the same in all versions.
        random.Random(seed).shuffle(knobs)
    columns = [_by_distance(name, knob, centre.settings[name]) for name, knob in knobs]
    return [step for row in zip_longest(*columns) for step in row if step is not None]


def _by_distance(name: str, knob: Tunable, current: int | float | str | bool) -> list[_Step]:
    at = knob.values.index(current)
    others = sorted(
        (index for index in range(len(knob.values)) if index != at),
        key=lambda index: (abs(index - at), -index),
    )
    return [_Step(name, knob.values[index]) for index in others]


def _pairs(family: Family, centre: Point, levers: tuple[str, ...]) -> Iterator[_Idea]:
    steps = _steps(family, centre, levers)
    pairs = [(a, b) for a, b in combinations(steps, 2) if a.name != b.name][:MAX_PAIRS]
    for a, b in pairs:
        point = Point(family.name, centre.settings | {a.name: a.value, b.name: b.value})
        technique = "+".join(sorted((a.name, b.name)))
        yield _Idea(point, f"{a.name} to {a.value} and {b.name} to {b.value}", technique)


def _pending(brief: RoundBrief, families: list[Family]) -> Iterator[_Idea]:
    """What was faster than the present incumbent at the gate and waits for a sweep."""
    by_name = {family.name: family for family in families}
    direction = None if "*" in brief.direction.levers else brief.direction.id
    for trial in brief.memory.pending(brief.incumbent.sha256, direction):
        family = by_name.get(trial.family or "")
        if family is not None and _is_valid(trial, family):
            point = Point(family.name, dict(trial.settings))
            rationale = f"took {trial.ratio:.3f} at a gate, had no fair sweep"
            yield _Idea(point, rationale, trial.technique)


def _undecided(brief: RoundBrief, families: set[str]) -> Iterator[_Idea]:
    """Settings that looked faster and were not promoted, fastest first.

    Not what a whole sweep found faster and slower by size, and not for ever.
    """
    against = [past for past in brief.memory.rounds if past.incumbent == brief.incumbent.sha256]
    decided = {past.swept for past in against if past.code in _DECIDED}
    measured = Counter(trial.sha256 for past in against for trial in past.trials)
    trials = {
        trial.sha256: trial
        for past in against
        for trial in past.trials
        if trial.passed and trial.verdict is Verdict.PASS and trial.family in families
        if trial.sha256 not in decided and measured[trial.sha256] < MOST_GATES
        if trial.ratio is not None and trial.ratio < 1
    }
    for trial in sorted(trials.values(), key=lambda t: (t.ratio or 1.0, t.sha256)):
        assert trial.family is not None, "it is one of the families"
        point = Point(trial.family, dict(trial.settings))
        yield _Idea(point, "measured before, undecided", trial.technique)


def _create(context: AgentContext) -> KnobsAgent:
    return KnobsAgent(context)


AGENT = AgentFactory(create=_create, promotion="auto")
