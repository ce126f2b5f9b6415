"""Of commands of the loop: runs, rounds and promotions."""

from __future__ import annotations

from typing import Any, Literal

from kopt_harness.schema import (
    Model,
)

from ..costs import Cost
from ..dispatch import Table
from ..evidence import Evidence
from ..result import CandidateRef, Condition, PromoteOutcome
from ..steering import Steer

__all__ = [
    "CampaignRow",
    "CampaignStatusDocument",
    "DashboardDocument",
    "EvidenceDocument",
    "ExplainDocument",
    "HistoryDocument",
    "LastRecord",
    "NoRunDocument",
    "PromoteDispatchDocument",
    "PromotionRow",
    "PromotionStatusDocument",
    "ReindexDocument",
    "RerunDocument",
    "RoundDocument",
    "RoundRow",
    "RunCost",
    "SteerDocument",
    "SweepStatusDocument",
    "TechniqueRow",
]

State = Literal["running", "finished", "interrupted"]
Interval = tuple[float, float]


class RunCost(Model):
    """What a run has cost, by who and for what."""

    total: Cost
    """Of agents."""
    harness_device_s: float
    """Seconds of the device that the harness itself has measured."""
    by_agent: dict[str, Cost]
    by_model: dict[str, Cost]
    by_role: dict[str, Cost]
    """Sub-agents under their own name."""
    by_candidate: dict[str, Cost]
    """By SHA-256; a call's cost in equal parts for all that it led to."""
    device_s: float
    """Seconds of the device, those of the harness and those that agents asked for."""
    campaign_wall_s: float
    """Of all processes of the run together."""


class LastRecord(Model):
    """Of a journal."""

    time: str
    key: str


class RoundRow(Model):
    """One closed round in a list."""

    round: int
    bottleneck: str
    direction: str
    candidates: int
    passed: int
    """Of these, by the gate."""
    decision: str
    reason: str
    best: CandidateRef | None
    """The one that was swept."""
    ratio: float | None
    """Its mean latency over that of the incumbent."""
    ci: Interval | None
    applied: bool
    """Whether the incumbent moved, in the round or by a command."""
    promoted_by: str | None
    """Run of the command."""


class PromotionRow(Model):
    """One ``kopt promote``."""

    run: str
    kind: Literal["promote"]
    definition: str
    target: str
    created: str
    by: str | None
    state: State
    candidate: CandidateRef
    applied: bool
    incumbent: CandidateRef | None
    incumbent_after: CandidateRef | None
    ratio: float | None
    ci: Interval | None
    overridden: tuple[str, ...] | None
    conditions: tuple[Condition, ...] | None
    detail: str | None


class CampaignRow(Model):
    """One run of ``kopt round``."""

    run: str
    kind: Literal["campaign"]
    definition: str
    target: str
    created: str
    agent: str
    state: State
    rounds_planned: int
    records: int
    last: LastRecord | None
    promotable: str | None
    """``RUN/ROUND`` that waits for a person."""
    promotions: tuple[PromotionRow, ...]
    """Later ones that moved the incumbent."""
    rounds: tuple[RoundRow, ...]
    cost: RunCost | None
    """Of its rounds, in a list of runs of its closed ones; null where nothing was noted."""


class ReachedLimit(Model):
    """A limit of a campaign that was reached."""

    name: str
    """``max_dollars`` and the like."""
    used: float
    limit: float


class CampaignStatusDocument(CampaignRow):
    """Where a run stands."""

    pending_steers: tuple[Steer, ...]
    """What people have said and no round has taken yet."""
    limit: ReachedLimit | None
    """What bars it from going on; null where nothing does, or it is not interrupted."""
    retained: CandidateRef | None
    """The incumbent now."""
    problems: tuple[str, ...]
    """What is amiss in its files, such as a tail of the journal that is no record."""


class PromotionStatusDocument(PromotionRow):
    """The same of a ``kopt promote``."""

    retained: CandidateRef | None
    problems: tuple[str, ...]
    """What is amiss in its files."""


class SweepStatusDocument(Model):
    """The same of a ``kopt sweep``."""

    run: str
    kind: Literal["sweep"]
    folder: str
    definition: str
    target: str
    created: str
    solutions: tuple[dict[str, Any], ...]
    workloads: int
    workers: int | None
    state: State
    records: int
    last: LastRecord | None
    verdicts: dict[str, int]
    progress: dict[str, Any] | None
    """Counts, and what each worker does; null unless it is running."""


class NoRunDocument(Model):
    """There is none yet."""

    run: None


class HistoryDocument(Model):
    """Runs and promotions."""

    runs: tuple[CampaignRow, ...]
    runs_in_all: int
    promotions: tuple[PromotionRow, ...]
    problems: tuple[str, ...]
    """Runs that cannot be read, and why."""


class SteerDocument(Model):
    """What a run was told."""

    run: str
    added: int
    steers: tuple[Steer, ...]


class DashboardDocument(Model):
    """Printed before it begins to answer."""

    url: str
    run: str | None


class RoundDocument(Model):
    """The rounds of a run: state, direction, candidates, sweep, decision of each."""

    run: str
    rounds: tuple[dict[str, Any], ...]
    """As ``RoundResult``, with the focused regime's signature as ``state``, all of them in
    ``state.regimes``, and ``cost``: as of the run, without ``campaign_wall_s``."""
    cost: RunCost | None
    """Of its closed rounds; null where nothing was noted."""


class RerunDocument(Model):
    """A round that was run again."""

    run: str
    rounds: tuple[dict[str, Any], ...]
    """The one round, as of ``round``."""
    cost: RunCost | None
    """Of the new run; null where nothing was noted."""
    rerun_of: str
    """``RUN/ROUND``."""
    changed: tuple[str, ...]
    """What is no longer the same."""
    same: dict[str, Any]


class ExplainDocument(Model):
    """Why a direction was chosen, round by round."""

    run: str
    rounds: tuple[dict[str, Any], ...]


class TechniqueRow(Model):
    """All evidence under one key."""

    definition: str
    target: str
    regime: str
    direction: str
    technique: str
    tried: int
    faster: int
    slower: int
    wrong: int
    ratio: float | None
    ci: Interval | None


class EvidenceDocument(Model):
    """What was tried, pooled and singly."""

    techniques: tuple[TechniqueRow, ...]
    candidates: tuple[Evidence, ...]


class PromoteDispatchDocument(Model):
    """A dispatcher that was made, and what came of its promotion."""

    dispatcher: CandidateRef
    rule: dict[str, Any]
    table: Table
    promotion: PromoteOutcome | None


class ReindexDocument(Model):
    """The index that was made."""

    runs: int
    records: int
    evaluations: int
    problems: tuple[str, ...]
    seconds: float
