"""What the loop works with: the fixed parts of a campaign, and the place of a round in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kopt_harness.ledger import Ledger
from kopt_harness.schema import Definition, Profile, Solution, SweepResult, Workload

from .agents import Agent, Writer
from .config import PromotionMode, PromotionRules
from .directions import Direction
from .harness import Harness
from .memory import Memory
from .metering import Meter
from .policy import Policy
from .result import Decision, PromotionRecord
from .state import Floor, State
from .steering import Steer, Steering

__all__ = ["Promotion", "Representative", "Seat", "SolutionStore", "Turn", "World"]


class SolutionStore(Protocol):
    """Keeps packed solutions by content; ``kopt_harness.archive.Archive`` is one."""

    def put(self, solution: Solution) -> Any:
        """Keeps a solution."""
        ...

    def get(self, sha256: str) -> Solution:
        """The solution of this content."""
        ...


class Representative(NamedTuple):
    """A workload that stands for a regime."""

    workload: Workload
    regime: str
    weight: int
    """Workloads of the regime that it stands for."""
    cost_bytes: int
    flops: int
    floor: Floor
    origin: str = "cost model"
    """Why it is a regime."""
    members: tuple[str, ...] = ()
    """UUIDs of all workloads of the regime; empty where it has more than one representative."""


class Promotion(NamedTuple):
    """What is handed over when a decision says ``promote``."""

    candidate: Solution
    incumbent: Solution
    sweep: SweepResult
    decision: Decision
    state: State
    """Of the candidate, from its own profiles."""
    profiles: tuple[Profile, ...]
    rules: PromotionRules
    """By which it was decided."""
    samples_prefixes: tuple[str, ...]
    """Beginnings of the journal keys of the samples of sweep and validation."""
    overridden: tuple[str, ...] = ()
    """Flags that a person has accepted while the run went on."""


class Seat(NamedTuple):
    """An agent, and what it may do without a person."""

    agent: Agent
    mode: PromotionMode


@dataclass(frozen=True)
class World:
    """Everything that a campaign works with; fixed while it runs."""

    run: str
    definition: Definition
    target: str
    workloads: Sequence[Workload]
    """Every workload of the definition: what a promotion must cover."""
    sweep_workloads: Sequence[Workload]
    representatives: Sequence[Representative]
    harness: Callable[[], Harness]
    """Made when something has to be measured, so a closed run needs no device to be read."""
    agent: Agent
    policy: Policy
    directions: Mapping[str, Direction]
    solutions: SolutionStore
    ledger: Ledger
    mode: PromotionMode
    promote: Callable[[Promotion], PromotionRecord]
    """Moves the incumbent; only called with ``mode == "auto"``. May be called twice."""
    max_candidates: int
    search_seed: int
    public_seed: int | None
    rules: PromotionRules
    """What a promotion requires."""
    notify: Callable[[str], None]
    """Progress, one line for a person."""
    may_start: Callable[[float | None], bool] = lambda _: True
    """Whether the budget allows another round; a person's, in seconds, or the configured."""
    steers: Callable[[], Sequence[Steer]] = tuple
    """All that people have said to the run."""
    seat: Callable[[str], Seat] | None = None
    """Another agent by name; null: the run cannot change its agent."""
    regroup: Callable[[Mapping[str, float]], Sequence[Representative]] | None = None
    """Representatives of the regimes that an incumbent's latencies show; null: they are fixed."""
    ladder: tuple[str, ...] = ()
    """What to do where a plateau stays, rung by rung."""
    refuse_duplicates: bool = True
    """Whether what stands for a rejected candidate is not measured."""
    writer: Writer | None = None
    """Answers in words for a policy that plans; null: nobody does."""
    reviewer: Writer | None = None
    """Looks at what would be promoted; null: nobody does."""
    debaters: tuple[Writer, ...] = ()
    """Two that debate before a person is asked; none: the person is."""
    meter: Meter | None = None
    """Counts what is spent, and ends the campaign at a limit; null: nothing is counted."""


class Turn(NamedTuple):
    """One round's place in the campaign."""

    number: int
    """From 1."""
    ledger: Ledger
    """The journal, below ``r<number>/``."""
    incumbent: Solution
    memory: Memory
    steering: Steering = Steering()
    """What people had said until the round began."""
    rung: str | None = None
    """Of the plateau ladder."""
    retained: Solution | None = None
    """What a promotion must beat, where that is not the incumbent."""
    parent: Solution | None = None
    """What the agent starts from, where that is not the incumbent."""
    instructions: str = ""
    """What the policy tells the agent."""
    urged: tuple[str, ...] = ()
    """Directions that the policy, or a debate, asks for."""
    is_supervised: bool = True
    """Whether what the supervisor says counts."""
