"""Which campaigns an ablation is made of.

Arms: an agent with the goal alone, the same with one mechanism at a time, and all of kopt. Scopes:
one workload, and the whole definition. All arms have the same agent, the same start, the same
numbers of rounds and candidates, and for each seed the same seed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kopt_harness.schema import Model
from pydantic import Field

from ..config import RunConfig
from ..mechanisms import ALL, Mechanism, applicable
from ..result import CandidateRef

__all__ = ["FULL", "GOAL", "LEAST_SEEDS", "Arm", "Cell", "Plan", "Scope", "arm_of"]

Scope = Literal["single", "whole"]
Arm = str
"""``goal-only``, ``+<mechanism>`` or ``full``."""

GOAL: Arm = "goal-only"
FULL: Arm = "full"
LEAST_SEEDS = 2
"""One has no spread, so nothing could be said of an effect."""


def arm_of(mechanism: Mechanism) -> Arm:
    """The arm that has this mechanism and no other."""
    return f"+{mechanism}"


class Cell(NamedTuple):
    """One campaign of the ablation."""

    scope: Scope
    arm: Arm
    seed: int

    @property
    def key(self) -> str:
        """Of its records."""
        return f"cell/{self.scope}/{self.arm}/{self.seed}"


class Plan(Model):
    """What an ablation is; kept in its manifest."""

    definition: str
    target: str
    config: RunConfig
    """Of every campaign, but for policy, mechanisms and seed."""
    seeds: int = Field(ge=LEAST_SEEDS)
    start: CandidateRef
    """What every campaign starts from, and every result is compared with."""
    whole: tuple[str, ...]
    """UUIDs of the workloads of the whole definition, as the ablation takes it."""
    single: str
    """UUID of the single workload."""
    mechanisms: tuple[Mechanism, ...] = ALL
    writes_code: bool = False
    """Whether the agent is given prompts, so that mechanisms of the prompt apply."""
    reuse: bool = False
    """Whether a pair of solutions is gated and swept once for all campaigns: cheaper, and all of
    them share its noise."""
    total_s: float | None = None
    """Wall time after which no further campaign starts."""

    @property
    def tried(self) -> tuple[Mechanism, ...]:
        """Mechanisms that mean something to the agent."""
        return tuple(
            each for each in self.mechanisms if applicable(each, writes_code=self.writes_code)
        )

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All arms, also those that need no campaign of their own."""
        return (GOAL, *(arm_of(each) for each in self.mechanisms), FULL)

    def is_run(self, arm: Arm) -> bool:
        """Whether the arm has campaigns; a dispatcher is made of those of another arm."""
        return arm in (GOAL, FULL) or arm in {
            arm_of(each) for each in self.tried if each != "dispatch"
        }

    def applies(self, arm: Arm, scope: Scope) -> bool:
        """Whether the arm is anything: one workload leaves nothing to dispatch."""
        if arm == arm_of("dispatch"):
            return scope == "whole" and "dispatch" in self.tried
        return self.is_run(arm)

    def cells(self) -> tuple[Cell, ...]:
        """All campaigns; seed by seed, each beginning with another arm, so that drift is shared."""
        arms = [arm for arm in self.arms if self.is_run(arm)]
        found = []
        for seed in range(self.seeds):
            turned = arms[seed % len(arms) :] + arms[: seed % len(arms)]
            scopes: tuple[Scope, ...] = (
                ("single", "whole") if seed % 2 == 0 else ("whole", "single")
            )
            found += [Cell(scope, arm, seed) for scope in scopes for arm in turned]
        return tuple(found)

    def config_of(self, cell: Cell) -> RunConfig:
        """The configuration of one campaign."""
        mechanism = cell.arm.removeprefix("+")
        changes: dict[str, object] = {
            "policy": "assisted" if cell.arm == FULL else "goal-only",
            "mechanisms": (mechanism,) if cell.arm.startswith("+") else (),
            "search_seed": (self.config.search_seed or 0) + cell.seed,
            "promotion": "auto",
            "target": self.target,
            "sweep_workloads": ("all",),
        }
        if cell.scope == "single":
            changes["gate_workloads"] = (self.single,)
        return RunConfig.model_validate(self.config.model_dump(mode="json") | changes)
