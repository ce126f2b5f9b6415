"""What an order of directions is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ..directions import Direction
from ..memory import Memory
from ..result import Choice
from ..state import State
from ..supervisor import Advice

__all__ = ["Policy"]


@runtime_checkable
class Policy(Protocol):
    """Orders the directions of a round."""

    name: str

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
        """The directions worth trying, best first; blocked ones are not among them.

        Deterministic: equal arguments give equal choices.

        Args:
            state: Of the incumbent.
            directions: The catalogue.
            memory: Of the definition on the target.
            advice: Of the supervisor.
            incumbent: SHA-256 of the solution to beat.
            seed: Decides between equals.
        """
        ...
