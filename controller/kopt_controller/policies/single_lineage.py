"""One line of versions, each no worse than the one before.

The agent always starts from the newest version. A candidate becomes one where the whole sweep
finds it right everywhere, no slower than that version on the mean and slower on no workload; it
need not be faster beyond the noise, so that a step may prepare the next. What is retained is moved
by a promotion alone, against what is retained. After some rounds without a new version the
search is sent where it has not been since.
"""

from __future__ import annotations

from kopt_harness.schema import SweepResult

from ..choosing import catalogue
from ..memory import Memory
from ..policy.conditions import NOT_RUN
from ..result import Decision, RoundResult
from ..world import Turn, World
from .protocol import PlainPolicy, SearchContext, SearchFactory, SearchPolicy

__all__ = ["POLICY", "SingleLineagePolicy"]

NOT_OF_A_VERSION = frozenset({"speed", "median", "p95", "worst-regime"})
"""Conditions of a promotion that a version of the line need not meet. The validation that a
promotion has at its end is one that it must not have failed."""


class SingleLineagePolicy(PlainPolicy):
    """Commits what does not regress; looks elsewhere on stagnation."""

    name = "single-lineage"

    def __init__(self, stagnation: int) -> None:
        self._stagnation = stagnation
        self._since: list[str] = []
        """Directions of the rounds since the last version."""
        self.versions: list[str] = []
        """SHA-256 of all versions of the line, oldest first."""

    def begin(self, world: World, turn: Turn) -> Turn:
        """On stagnation, what was not tried since the last version comes first."""
        if not self.versions:
            self.versions.append(turn.incumbent.sha256)
        if len(self._since) < self._stagnation:
            return turn
        tried = set(self._since)
        fresh = tuple(name for name in catalogue(world, turn) if name not in tried)
        blocked = turn.steering.blocked
        ranked = _by_gain(world, turn.memory, tuple(n for n in fresh if n not in blocked))
        return turn._replace(rung=turn.rung or "widen", urged=(*turn.urged, *ranked))

    def commits(self, sweep: SweepResult, decision: Decision) -> bool:
        """Right everywhere, not slower on the mean, surely slower nowhere."""
        comparison = sweep.comparison
        if comparison is None or comparison.ratio is None or comparison.decision == "slower":
            return False
        required = [each for each in decision.evidence if each.name not in NOT_OF_A_VERSION]
        holds = all(each.ok or each.measured == NOT_RUN for each in required)
        return bool(required) and holds and decision.label != "reject" and comparison.ratio <= 1

    def end(self, world: World, turn: Turn, result: RoundResult) -> None:
        """A new version ends a stagnation."""
        del world, turn
        if result.incumbent.sha256 != result.incumbent_before.sha256:
            self.versions.append(result.incumbent.sha256)
            self._since = []
        else:
            self._since.append(result.direction.id)


def _by_gain(world: World, memory: Memory, names: tuple[str, ...]) -> tuple[str, ...]:
    """What was tried least comes first, then what may win most."""
    return tuple(
        sorted(
            names,
            key=lambda name: (len(memory.along(name)), -world.directions[name].prior_gain, name),
        )
    )


def _create(context: SearchContext) -> SearchPolicy:
    return SingleLineagePolicy(context.config.stagnation)


POLICY = SearchFactory(create=_create)
