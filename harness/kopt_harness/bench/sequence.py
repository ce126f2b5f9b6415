"""When to look at the blocks, what to conclude, and where further blocks go.

A ``Rule`` holds all that a comparison's decision depends on beside the samples, so that live
comparisons and those that are drawn again out of recorded blocks are decided alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kopt_harness.schema import BlockOrder, ComparisonDecision, PairedBlock

from .regressions import Regression, Secondary, regressions
from .stats import (
    Levels,
    RatioInterval,
    decide,
    interval_of,
    look_confidence,
    spread,
    student_interval,
)

__all__ = ["Ended", "Look", "Rule", "Take", "next_order", "run_sequence"]

GROWTH = 1.5
"""A workload whose answer is open gets so many times its blocks at the next look."""
_MOST = 0.8
"""Of the variance, that further blocks are to lower."""
_LEAST_GAIN = 0.1
"""Share of the variance that can still be lowered, below which another look is not worth it."""
_TELLING_BLOCKS = 3
"""Fewer say so little of a workload's variance that choosing by it would prefer those that are
noisy by chance, and leave those that are quiet by chance as they are."""
_SUSPICIOUS = 0.05
"""A workload that may be slower with this probability of error is looked into."""

Take = Callable[[int, int], Levels]
"""Levels of a workload, by its position: exactly so many blocks, from the first on."""


class Look(NamedTuple):
    """What the data says at one time."""

    number: int
    """From 1."""
    confidence: float
    """Of the interval, so that all looks together keep the comparison's."""
    interval: RatioInterval
    decision: ComparisonDecision


class Ended(NamedTuple):
    """A sequence that has come to an end."""

    look: Look
    counts: tuple[int, ...]
    """Blocks of each workload."""


class Rule(NamedTuple):
    """How a comparison is decided."""

    blocks_min: int
    blocks_max: int
    confidence: float
    margin: float
    rounds: bool = False
    """Whether the n-th blocks of all workloads have something in common."""

    @property
    def planned(self) -> int:
        """Looks until a workload that is grown at each of them is full."""
        count, looks = self.blocks_min, 1
        while count < self.blocks_max:
            count, looks = self.grown(count), looks + 1
        return looks

    def grown(self, count: int) -> int:
        """Blocks of a workload at the next look, where it is to have more."""
        return max(count, min(self.blocks_max, max(count + 1, math.floor(count * GROWTH))))

    def look(
        self,
        workloads: Sequence[Levels],
        number: int,
        *,
        last: bool | None = None,
        interval_by: Callable[..., RatioInterval] = interval_of,
    ) -> Look:
        """The interval and the decision.

        Args:
            workloads: blocks of each.
            number: of this look, from 1.
            last: whether nobody is ``uncertain``, where that is known.
            interval_by: how the interval is computed.
        """
        if last is None:
            last = not self.uncertain(workloads)
        confidence = look_confidence(
            self.confidence, number, self.planned, last=last, rounds=self.rounds
        )
        interval = interval_by(workloads, confidence, rounds=self.rounds)
        return Look(number, confidence, interval, decide(interval, self.margin))

    def uncertain(self, workloads: Sequence[Levels]) -> list[int]:
        """Positions of the workloads that make up most of the variance and are not full.

        All that have fewer than three blocks, before anything is chosen. None where what is left
        to gain is small: another look would cost more than it tells.
        """
        enough = min(_TELLING_BLOCKS, self.blocks_max)
        few = [position for position, each in enumerate(workloads) if len(each) < enough]
        if few:
            return few
        shares = spread(workloads)
        ranked = sorted(range(len(shares)), key=lambda position: -shares[position])
        gathered, reducible, chosen = 0.0, 0.0, []
        for position in ranked:
            if len(workloads[position]) < self.blocks_max:
                chosen.append(position)
                reducible += shares[position]
            gathered += shares[position]
            if gathered >= _MOST * sum(shares) and chosen:
                break
        return chosen if reducible >= _LEAST_GAIN * sum(shares) else []

    def suspicious(self, workloads: Sequence[Levels]) -> list[int]:
        """Workloads on which B may be slower, undecided, that are not full.

        Of those that have fewer than three blocks all on which it looks slower by the margin.
        """
        counts = [len(each) for each in workloads]
        looks_slower = 1 / (1 - self.margin)
        return [
            position
            for position, each in enumerate(self.regressions(workloads))
            if not each.slower
            and counts[position] < self.blocks_max
            and (
                each.plain_p < _SUSPICIOUS
                or (counts[position] < _TELLING_BLOCKS and each.ratio > looks_slower)
            )
        ]

    def unsettled(self, workloads: Sequence[Levels], beside: Secondary) -> list[int]:
        """Workloads that look slower without being shown to be, where looks alone bar B.

        A promotion asks for estimates without a test as well: the median, the 95th percentile
        and the worst regime. With few blocks they are noise, and more blocks are due.

        Args:
            workloads: at least two blocks of each.
            beside: those estimates, of the same blocks.

        Returns:
            Their positions, without those that are full; none where no estimate is above the
            margin.
        """
        limit = 1 + self.margin
        if max(beside.median_ratio, beside.p95_ratio, beside.worst_regime_ratio) <= limit:
            return []
        return [
            position
            for position, each in enumerate(self.regressions(workloads))
            if each.ratio > limit and not each.slower and len(workloads[position]) < self.blocks_max
        ]

    def regressions(self, workloads: Sequence[Levels]) -> list[Regression]:
        """Each workload's, corrected for their number."""
        return regressions(workloads, self.margin)


def next_order(known: Sequence[PairedBlock]) -> BlockOrder:
    """Order of the block after those: at random, or the other one of its pair."""
    if len(known) % 2:
        return "baab" if known[-1].order == "abba" else "abba"
    return random.SystemRandom().choice(("abba", "baab"))


def run_sequence(rule: Rule, workloads: int, take: Take, *, quick: bool = False) -> Ended:
    """Looks at growing data until it is decided or full; without a clock.

    Args:
        rule: how it is decided.
        workloads: how many.
        take: gives their blocks.
        quick: whether the interval of an undecided end may be Student's alone.
    """
    counts = [rule.blocks_min] * workloads
    number = 0
    while True:
        number += 1
        levels = [take(position, count) for position, count in enumerate(counts)]
        open_ = rule.uncertain(levels)
        look = rule.look(levels, number, last=not open_, interval_by=student_interval)
        # The whole interval is no narrower than Student's: it cannot decide what that leaves open.
        if look.decision != "ambiguous" or not (open_ or quick):
            look = rule.look(levels, number, last=not open_)
        if look.decision != "ambiguous" or not open_:
            return Ended(look, tuple(counts))
        for position in range(workloads) if rule.rounds else open_:
            counts[position] = rule.grown(counts[position])
