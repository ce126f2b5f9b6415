"""A comparison that is being measured: its interval as the blocks come in.

The interval here is Student's, of the blocks that there are, at the confidence of the run. It is
no decision: the harness corrects for every look it takes and widens by a bootstrap, and its own
interval replaces this one when the comparison has ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from kopt_harness.bench.stats import block_levels, student_interval
from kopt_harness.schema import PairedBlock

__all__ = ["Interval", "Pair"]

WIDEST = 1000.0
"""End over end of an interval that is shown; two blocks can give one of eighty decades."""
REPLAYED_POINTS = 16
"""Of a history that nobody has watched."""
MOST_POINTS = 96
"""Of a history; every second one is dropped where there are more."""


class Interval(NamedTuple):
    """What the blocks say so far."""

    blocks: int
    """Of all workloads together."""
    ratio: float
    lo: float
    hi: float

    def rounded(self) -> list[float]:
        """As it is sent: five digits are more than is drawn."""
        return [self.blocks, *(float(f"{value:.5g}") for value in self[1:])]


class Pair:
    """Blocks of two solutions, by workload."""

    def __init__(self, confidence: float, *, rounds: bool) -> None:
        """No blocks yet.

        Args:
            confidence: Of the interval.
            rounds: Whether the n-th blocks of all workloads have processes in common.
        """
        self.confidence = confidence
        self.history: list[Interval] = []
        self.is_new = False
        """Whether there are blocks that no interval was taken of."""
        self._rounds = rounds
        self._order: list[str] = []
        """Workload of each block, as they came."""
        self._samples: dict[str, list[tuple[Sequence[int], Sequence[int]]]] = {}
        self._levels: dict[str, list[tuple[float, float]]] = {}

    @property
    def blocks(self) -> int:
        """So far."""
        return len(self._order)

    @property
    def workloads(self) -> int:
        """Workloads that have a block."""
        return len(self._samples)

    def add(self, uuid: str, a_ns: Sequence[int], b_ns: Sequence[int]) -> None:
        """One more block of a workload."""
        self._samples.setdefault(uuid, []).append((a_ns, b_ns))
        self._order.append(uuid)
        self.is_new = True

    def look(self) -> bool:
        """Takes an interval of what there is; whether that is one more."""
        if not self.is_new:
            return False
        self.is_new = False
        return self._note(Counter(self._order))

    def replay(self) -> None:
        """The history as it would have been seen, of blocks that came all at once."""
        self.is_new = False
        self.history.clear()
        for step in range(1, REPLAYED_POINTS + 1):
            seen = Counter(self._order[: len(self._order) * step // REPLAYED_POINTS])
            is_last = step == REPLAYED_POINTS
            # Somebody who looked then would have waited for the second block of a workload.
            whole = Counter({uuid: n for uuid, n in seen.items() if n > 1 or is_last})
            if whole and (not self.history or whole.total() > self.history[-1].blocks):
                self._note(whole)

    def _note(self, counts: Mapping[str, int]) -> bool:
        """The interval of the first blocks of each workload, so many as are given."""
        found = self._interval(counts)
        if found is not None:
            self.history.append(found)
            if len(self.history) > MOST_POINTS:
                del self.history[1:-1:2]
        return found is not None

    def _interval(self, counts: Mapping[str, int]) -> Interval | None:
        taken = [list(self._of(uuid))[:count] for uuid, count in counts.items()]
        if any(len(each) < 2 for each in taken):
            return None
        levels = [np.array(each, dtype=np.float64) for each in taken]
        # A noiseless simulation has no variance, and its interval no width.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = student_interval(levels, self.confidence, rounds=self._rounds)
        if not all(map(math.isfinite, found[:3])) or found.hi > WIDEST * found.lo:
            return None
        return Interval(sum(map(len, taken)), *found[:3])

    def _of(self, uuid: str) -> Iterator[tuple[float, float]]:
        """Levels of a workload, each computed once."""
        known = self._levels.setdefault(uuid, [])
        new = self._samples[uuid][len(known) :]
        if new:
            blocks = [PairedBlock(a_ns=tuple(a), b_ns=tuple(b)) for a, b in new]
            known += [(float(a), float(b)) for a, b in block_levels(blocks)]
        return iter(known)

    def document(self, *, most: int = MOST_POINTS) -> dict[str, Any]:
        """What is drawn.

        Args:
            most: Points of the history, about; the first and the last are kept.
        """
        step = max(1, len(self.history) // most)
        points = [*self.history[:-1:step], *self.history[-1:]]
        return {
            "blocks": self.blocks,
            "workloads": self.workloads,
            "confidence": self.confidence,
            "history": [each.rounded() for each in points],
        }
