"""What a session leaves to chance: where tensors lie, and which input set comes when."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kopt_harness.layout import Arena

__all__ = ["Chance"]


class Chance:
    """Draws from one sequence, which a public seed repeats."""

    def __init__(self, seed: int | None, arena: Arena, static_inputs: Sequence[str]) -> None:
        """Starts the sequence.

        Args:
            seed: None: nobody can repeat it.
            arena: With the slots of the tensors.
            static_inputs: Names of tensors that only move together.
        """
        self._random = random.Random(seed)
        self._arena = arena
        self._static = tuple(static_inputs)

    def shifts(self, *, some: bool) -> dict[str, int]:
        """A new place for every tensor, or with ``some`` for a random part of them."""
        names = list(self._arena.by_name())
        moved = self._random.sample(names, max(1, len(names) // 2)) if some else names
        return {name: self._place() if name in moved else 0 for name in names}

    def single_shifts(self) -> list[dict[str, int]]:
        """New places for one tensor each, in random order; static inputs move together."""
        names = list(self._arena.by_name())
        groups: list[tuple[str, ...]] = [(name,) for name in names if name not in self._static]
        self._random.shuffle(groups)
        if self._static:
            groups.append(self._static)
        still = dict.fromkeys(names, 0)
        return [still | {name: self._place() for name in group} for group in groups]

    def chosen(self, numbers: Sequence[int], count: int) -> list[int]:
        """``count`` sets in random order, each as often as the others up to one."""
        chosen: list[int] = []
        while len(chosen) < count:
            chosen += self._random.sample(list(numbers), len(numbers))
        return chosen[:count]

    def _place(self) -> int:
        return self._random.randint(1, self._arena.shifts)
