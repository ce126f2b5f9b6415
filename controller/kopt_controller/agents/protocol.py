"""What an agent gets, gives and is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from kopt_harness.pack import Packed
from kopt_harness.schema import Definition, Solution

from ..directions import Direction
from ..memory import Memory
from ..space import SearchSpace
from ..state import State
from ..steering import Steering

__all__ = ["Agent", "AgentContext", "AgentFactory", "Proposal", "Proposals", "RoundBrief"]


class RoundBrief(NamedTuple):
    """What an agent is told in one round."""

    definition: Definition
    target: str
    round: int
    """From 1."""
    state: State
    direction: Direction
    incumbent: Solution
    memory: Memory
    limit: int
    """Candidates at most."""
    seed: int
    """Of choices that are left open; the same brief gives the same proposals."""
    steering: Steering = Steering()
    """What people said: notes, references, the model to use, and all else in their words."""


class Proposal(NamedTuple):
    """One candidate; what the agent says about it is a proposal, nothing more."""

    solution: Solution
    rationale: str
    family: str | None = None
    """Solution folder that it is a setting of."""
    settings: dict[str, Any] = {}  # a NamedTuple's default, never changed
    technique: str = ""
    """What was done, in a word or two that other rounds would use for the same."""


class Proposals(NamedTuple):
    """All candidates of a round."""

    candidates: tuple[Proposal, ...]
    notes: tuple[str, ...] = ()
    """What a person should know: files that could not be used, and the like."""


class AgentContext(NamedTuple):
    """What an agent is made with, once for a campaign."""

    definition: Definition
    space: SearchSpace
    load: Callable[[Path], Packed]
    """Reads a solution from a folder or a JSON file."""
    inbox: Path
    scripted: tuple[Path, ...] = ()


@runtime_checkable
class Agent(Protocol):
    """Whoever writes candidates."""

    name: str

    def propose(self, brief: RoundBrief) -> Proposals:
        """A bounded family of candidates for the direction; empty where it has none.

        Never more than ``brief.limit``, no content twice, all of ``brief.definition``.
        """
        ...


class AgentFactory(NamedTuple):
    """What a module of this package defines as ``AGENT``."""

    create: Callable[[AgentContext], Agent]
    promotion: Literal["auto", "ask"]
    """Whether a promotion is applied without a person, where the configuration is silent."""
