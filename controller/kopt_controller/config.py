"""The run configuration: every knob of a campaign, declared once.

Precedence is defaults < file < flag, applied in ``load_config`` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.files import read_toml
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Model
from pydantic import Field, ValidationError, field_validator

from .agent_settings import AgentSettings
from .costs import Limits
from .faults import all_faults
from .mechanisms import Mechanism

__all__ = [
    "DEFAULT_CONFIG",
    "PesOptions",
    "PromotionMode",
    "PromotionRules",
    "RunConfig",
    "load_config",
]

DEFAULT_CONFIG = "default"
"""Name of the configuration that is used where none is named."""

PromotionMode = Literal["auto", "ask"]

Rung = Annotated[
    str,
    Field(pattern=r"^(widen|unblock|stop|(recommend|agent|language):[a-z0-9][a-z0-9_-]*)$"),
]
"""One rung of the plateau ladder."""


class PromotionRules(Model):
    """What a promotion requires beyond a right answer everywhere, no flag and secret inputs."""

    primary: Literal["mean-latency"] = "mean-latency"
    """What must be faster beyond the margin: the mean latency over all workloads."""
    regressions: Literal["holm", "off"] = "holm"
    """``holm``: no workload is slower by more than the margin, corrected for their number;
    ``off``: their slow-downs are shown and bar nothing."""
    regression_level: float = Field(default=0.05, gt=0, lt=1)
    """Probability of calling any workload slower that is not, over all of them together."""
    median_ratio_max: float | None = Field(default=None, gt=0)
    """Largest median over workloads of the ratio to the incumbent; null: 1 + the margin."""
    p95_ratio_max: float | None = Field(default=None, gt=0)
    """Largest 95th percentile over workloads of that ratio; null: 1 + the margin."""
    worst_regime_ratio_max: float | None = Field(default=None, gt=0)
    """Largest ratio of mean latencies in any regime; null: 1 + the margin."""
    min_distinct_inputs: int = Field(default=100, ge=0)
    """Input sets that the sweep has checked, over all workloads; where ``measure.trials`` gives
    fewer, a sweep takes as many more on each workload as it needs."""
    validate_in_second_process: bool = True
    """New processes find it right and not slower on representative workloads once more."""
    clean_rebuild: bool = True
    """Archived bytes, built in an empty cache, give the build that was measured."""
    external_confirmation: bool = True
    """On a GPU, a profiler outside of the candidate's process agrees with its times."""

    @property
    def need_validation(self) -> bool:
        """Whether something is to be done after the sweep."""
        return self.validate_in_second_process or self.clean_rebuild or self.external_confirmation


class PesOptions(Model):
    """Of the policy ``pes``: a population on islands."""

    islands: int = Field(default=3, ge=1)
    capacity: int = Field(default=24, ge=2)
    """Members of one island at most; the worst that is in no cell of its map goes first."""
    migrate_every: int = Field(default=5, ge=1)
    """Iterations after which the best of each island is copied to the next one."""
    explore: float = Field(default=0.2, ge=0, le=1)
    """Probability that a parent is drawn evenly instead of by its score."""
    checkpoint: str | None = None
    """Folder of a checkpoint whose population the campaign goes on with."""


class RunConfig(Model):
    """What a campaign does and how much it may spend."""

    agent: str = "knobs"
    """Who proposes candidates: a module of ``kopt_controller.agents``."""
    policy: str = "assisted"
    """How the campaign searches: a module of ``kopt_controller.policies``."""
    ranking: str = "match"
    """Who orders the directions of a round: a module of ``kopt_controller.policy``."""
    sub_agents: int = Field(default=1, ge=1)
    """Calls beside each other that an agent that writes code gets for one direction; what a round
    may measure is shared out among them."""
    mechanisms: tuple[Mechanism, ...] = ()
    """What the policy ``goal-only`` gives back of what it takes away."""
    pes: PesOptions = PesOptions()
    """Of the policy ``pes``."""
    stagnation: int = Field(default=2, ge=1)
    """Of the policy ``single-lineage``: rounds without a new version, until it looks elsewhere."""
    planner: str | None = None
    """Agent that plans and sums up for the policy ``pes``; null: the agent, where it can answer
    in words."""
    reviewer: str | None = None
    """Agent that reviews what would be promoted; null: nobody does."""
    debaters: tuple[str, ...] = ()
    """Two agents that debate what to do next before a person is asked; none: the person is."""
    target: str | None = None
    """Null: the best target of this machine."""
    promotion: PromotionMode | None = None
    """``auto`` moves the incumbent, ``ask`` leaves it to a person; null: the agent's own."""
    rounds: int = Field(default=1, ge=1)
    """Rounds of the campaign."""
    max_candidates: int | None = Field(default=None, ge=1)
    """Candidates that a round gates at most. Null: 4; on a CPU 3, where each takes long."""
    gate_workloads: tuple[str, ...] = ("rep",)
    """Selectors of the representative workloads."""
    sweep_workloads: tuple[str, ...] = ("all",)
    """Selectors of the sweep; anything but all workloads bars promotion."""
    profiler: str = "torch"
    """What the incumbent is profiled with: a module of ``kopt_harness.profile``. ``ncu`` gives
    counters, and takes longer."""
    search_seed: int | None = None
    """Of choices that the search leaves open; null: drawn, and kept in the manifest."""
    budget_s: float | None = Field(default=None, gt=0)
    """Wall time after which no further round starts; null: no limit."""
    ladder: tuple[Rung, ...] = ("widen", "unblock")
    """What to do where a stall, a plateau or diminishing returns stay: one rung higher with each
    such round. ``widen``: more weight for what was tried little; ``unblock``: directions that
    were blocked may be tried again; ``recommend:ID``, ``agent:NAME``, ``language:NAME``; ``stop``:
    the campaign ends."""
    refuse_duplicates: bool = True
    """Whether a candidate that hardly differs from a rejected one costs no device time; false
    after a change of toolchain or driver, to measure again."""
    inbox: str | None = None
    """Folder of the inbox agent; null: ``artifacts/local/inbox/<definition>``."""
    scripted: tuple[str, ...] = ()
    """Solution folders or files that the scripted agent proposes, in order."""
    agents: dict[str, AgentSettings] = {}
    """By agent: what those that write code are started with."""
    limits: Limits = Limits()
    """What the campaign may spend; at a limit it stops, and ``kopt resume`` goes on with more."""
    measure: MeasureOptions = MeasureOptions()
    conditions: PromotionRules = PromotionRules()

    @field_validator("policy", mode="before")
    @classmethod
    def _of_old(cls, value: object) -> object:
        """Manifests of older versions name the order of directions here, and knew one policy."""
        return "assisted" if value == "match" else value

    @field_validator("debaters")
    @classmethod
    def _two(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) not in (0, 2):
            raise ValueError("a debate is between two: name two agents, or none")
        return value

    def settings_of(self, agent: str) -> AgentSettings:
        """The table of an agent; its defaults where there is none."""
        return self.agents.get(agent, AgentSettings())

    def candidates_on(self, kind: str) -> int:
        """``max_candidates``, resolved for a kind of target."""
        return self.max_candidates or (3 if kind == "cpu" else 4)


def load_config(configs: Path, name: str | None, flags: Mapping[str, Any]) -> RunConfig:
    """Defaults, then the file, then the flags.

    Args:
        configs: Folder of the named configurations.
        name: A name in that folder or a path; None: ``default`` where the folder has it.
        flags: By field; a dotted key reaches into a table (``measure.trials``); None is unset.

    Raises:
        NotFoundError: If there is no such configuration.
        InvalidInputError: If the file or a flag has an unknown field or a bad value.
    """
    path = _find(configs, name)
    merged = {} if path is None else read_toml(path, "run configuration")
    _check(merged, str(path))
    for key, value in flags.items():
        if value is not None:
            table, _, field = key.rpartition(".")
            place = merged.setdefault(table, {}) if table else merged
            place[field] = value
    return _check(merged, "the command line")


def _find(configs: Path, name: str | None) -> Path | None:
    if name is None:
        path = configs / f"{DEFAULT_CONFIG}.toml"
        return path if path.is_file() else None
    for path in (configs / f"{name}.toml", Path(name).expanduser()):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in configs.glob("*.toml"))) or "none"
    raise NotFoundError(
        f"no run configuration {name!r}", hint=f"give a TOML file, or one of: {known}"
    )


def _check(data: Mapping[str, Any], where: str) -> RunConfig:
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(
            f"{where}: {all_faults(error)}",
            hint=f"fields are {', '.join(sorted(RunConfig.model_fields))}; "
            f"under measure: {', '.join(sorted(MeasureOptions.model_fields))}; "
            f"under conditions: {', '.join(sorted(PromotionRules.model_fields))}; "
            f"under limits: {', '.join(sorted(Limits.model_fields))}; "
            f"under agents.NAME: {', '.join(sorted(AgentSettings.model_fields))}",
        ) from error
