"""What each command prints with ``--json``: one model for each document.

``scripts/json_reference.py`` makes the reference and the JSON schemas out of these, and tests hold
what commands print against them. Every document begins with ``schema``, which is 1 and stands in
none of the models; a command that fails prints ``ErrorDocument`` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kopt_harness.calibrate import WorkloadCalibration
from kopt_harness.foreign.finding import Finding
from kopt_harness.foreign.read import FileSummary
from kopt_harness.foreign.record import Problem
from kopt_harness.lint.report import Finding as LintFinding
from kopt_harness.schema import (
    BuildResult,
    Comparison,
    Evaluation,
    Flag,
    Model,
    Phase,
    Profile,
    Reason,
    Solution,
    SolutionRef,
    Verdict,
)
from kopt_harness.timing_report import TimingCalibration
from kopt_harness.trials import Failure

from .dispatch import Table
from .evidence import Evidence
from .result import CandidateRef, Condition, PromoteOutcome
from .steering import Steer

__all__ = ["DOCUMENTS", "ErrorDocument"]

State = Literal["running", "finished", "interrupted"]
Interval = tuple[float, float]


class ErrorDocument(Model):
    """Of any command that could not do what it was asked; the exit code is 2, 3 or 130."""

    error: str
    hint: str
    """What to do next."""


class DefinitionRow(Model):
    """One operator."""

    id: str
    alias: str
    op_type: str
    workloads: int
    """How many."""
    solutions: tuple[str, ...]
    """Names of the folders that ship."""
    description: str


class DefinitionsDocument(Model):
    """The operators that are here."""

    definitions: tuple[DefinitionRow, ...]


class WorkloadRow(Model):
    """One size."""

    index: int
    uuid: str
    axes: dict[str, int]
    regime: str
    bytes: int
    """That must be moved at least."""
    flops: int


class RegimeRow(Model):
    """Workloads of like cost."""

    name: str
    workloads: int
    representatives: tuple[int, ...]
    """Indices."""
    bytes: tuple[int, int]
    """Least and most."""
    flops: tuple[int, int]


class WorkloadsDocument(Model):
    """The sizes of one definition."""

    definition: str
    workloads: tuple[WorkloadRow, ...]
    regimes: tuple[RegimeRow, ...]


class DoctorDocument(Model):
    """What this machine can do."""

    targets: tuple[dict[str, Any], ...]
    """Name, whether it is present and why not, languages that build and run."""
    tools: tuple[dict[str, Any], ...]
    """Name, kind, version, whether it is there, and how to get it."""
    isolation: dict[str, Any]
    """What the kernel grants to the sandbox."""
    quarantine: tuple[dict[str, Any], ...]
    """Devices that are out of use, with the reason."""
    disk: dict[str, Any]
    platform: dict[str, Any]


class NewDocument(Model):
    """A solution folder that was begun."""

    solution: SolutionRef
    language: str
    origin: str
    """What it was copied from."""
    folder: str


class PackDocument(Model):
    """A packed solution, and what is doubtful in its sources."""

    solution: SolutionRef
    language: str
    entry_point: str
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    output: str | None
    """The file that was written."""


class UnpackDocument(Model):
    """A folder that was written."""

    solution: SolutionRef
    folder: str
    notes: tuple[str, ...]


class ExportDefinitionDocument(Model):
    """A definition as the contest's tools read it; with ``-o`` name and file instead."""

    definition: dict[str, Any]


class ExportSolutionDocument(Model):
    """A packed solution; with ``-o`` name and file instead."""

    solution: Solution


class ExportTraceSetDocument(Model):
    """A folder with inputs of workloads."""

    definition: str
    solution: str | None
    output: str
    seed: int
    workloads: tuple[str, ...]
    bytes: int


class BenchDocument(Model):
    """As of ``check``, with the timing of each workload beside its axes."""

    solution: SolutionRef
    target: str
    verdict: Verdict
    phase: Phase
    reasons: tuple[Reason, ...]
    flags: tuple[Flag, ...]
    workloads: tuple[dict[str, Any], ...]
    """With ``median_us``, ``p95_us``, ``n``, ``timer``, ``cache``, ``samples_ns``, ``reason``."""
    environment: dict[str, Any]
    isolation: dict[str, Any]
    mean_us: float | None
    """Over all workloads; null unless each was timed."""


class GateDocument(Evaluation):
    """As of ``check``, with the comparison."""

    passed: bool
    gate: Reason
    comparison: Comparison | None


class SweepDocument(Model):
    """One solution on every workload; of several solutions ``sweeps`` has one each."""

    solution: SolutionRef
    target: str
    verdict: Verdict
    phase: Phase
    reasons: tuple[Reason, ...]
    flags: tuple[Flag, ...]
    workloads: tuple[dict[str, Any], ...]
    """As of ``check``, with medians of the baselines and ``reference_latency_ms``."""
    environment: dict[str, Any]
    isolation: dict[str, Any]
    complete: bool
    comparison: Comparison | None
    """With the incumbent."""
    baseline: Comparison | None
    """With the first baseline."""
    baselines: dict[str, Any]
    best_baseline: dict[str, Any] | None


class ReplayDocument(Evaluation):
    """As of ``check``, and what the trials amount to; ``docs/replay.md`` explains each."""

    trials: int
    planned: int
    failures: int
    distinct: int
    """Different inputs, by what the calls were given."""
    moved: int
    """Trials with moved pointers."""
    repeats: dict[str, int]
    detection_rate: float
    detection_probability: float
    detection: tuple[dict[str, Any], ...]
    p_upper_95: float
    """Largest failure rate that these trials do not exclude."""
    generators: dict[str, Any]
    failed: tuple[Failure, ...]
    """The first 200."""


class ProfileDocument(Model):
    """What a profiler found on each workload."""

    solution: SolutionRef
    target: str
    profiler: str
    profiles: tuple[Profile, ...]


class CalibrateDocument(Model):
    """What a definition's checks tell apart."""

    definition: str
    target: str
    verdict: Verdict
    workloads: tuple[WorkloadCalibration, ...]
    environment: dict[str, Any]
    precision: dict[str, tuple[str, ...]]
    contest_accepts: dict[str, tuple[str, ...]]
    without_influence: tuple[str, ...]


class DiagnoseDocument(Model):
    """What limits what was profiled; of several files ``reports`` has one each, and ``errors``."""

    source: str
    format: str
    kernels: tuple[dict[str, Any], ...]
    ignored: tuple[dict[str, Any], ...]
    signature: dict[str, Any]
    regimes: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


class OfficialDocument(Model):
    """The contest's own evaluator and kopt, side by side."""

    solution: SolutionRef
    target: str
    seed: int
    official: dict[str, Any]
    kopt: dict[str, Any]
    workloads: tuple[dict[str, Any], ...]
    differences: tuple[str, ...]
    """A sentence each."""


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


class CampaignStatusDocument(CampaignRow):
    """Where a run stands."""

    retained: CandidateRef | None
    """The incumbent now."""


class PromotionStatusDocument(PromotionRow):
    """The same of a ``kopt promote``."""

    retained: CandidateRef | None


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
    """As ``RoundResult``, with the focused regime's signature as ``state`` and all of them in
    ``state.regimes``."""


class RerunDocument(RoundDocument):
    """A round that was run again."""

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


class ReportDocument(Model):
    """What was written, and what it says in short."""

    chapters: tuple[dict[str, Any], ...]
    """One for each definition on one target: runs, rounds, candidates, evaluations, headline."""
    imported: int
    """Results of other programs."""
    files: tuple[str, ...]


class ScoreRow(Model):
    """One definition."""

    id: str
    score: float
    """Mean over the workloads of baseline over solution; 0 if one failed."""
    ratio_of_means: float | None
    workloads: int
    baseline: str
    target: str
    solution: dict[str, str]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    foreign: bool
    file: str


class TrackRow(Model):
    """One track of the contest."""

    name: str
    score: float
    expected: int
    """Definitions."""
    absent: tuple[str, ...]


class ScoreDocument(Model):
    """Official scores."""

    definitions: tuple[ScoreRow, ...]
    tracks: tuple[TrackRow, ...]


class AuditDocument(Model):
    """What is wrong or doubtful in other programs' results."""

    files: tuple[FileSummary, ...]
    results: int
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]


class ImportDocument(Model):
    """What was taken in."""

    results: int
    added: int
    known: int
    files: tuple[FileSummary, ...]
    problems: tuple[Problem, ...]


DOCUMENTS: Mapping[str, tuple[type[Model], ...]] = {
    "definitions": (DefinitionsDocument,),
    "doctor": (DoctorDocument,),
    "workloads": (WorkloadsDocument,),
    "build": (BuildResult,),
    "export definition": (ExportDefinitionDocument,),
    "export solution": (ExportSolutionDocument,),
    "export trace-set": (ExportTraceSetDocument,),
    "new": (NewDocument,),
    "pack": (PackDocument,),
    "unpack": (UnpackDocument,),
    "bench": (BenchDocument,),
    "calibrate": (CalibrateDocument, TimingCalibration),
    "check": (Evaluation,),
    "compare": (Comparison,),
    "diagnose": (DiagnoseDocument,),
    "gate": (GateDocument,),
    "official": (OfficialDocument,),
    "profile": (ProfileDocument,),
    "replay": (ReplayDocument,),
    "sweep": (SweepDocument,),
    "dashboard": (DashboardDocument,),
    "evidence": (EvidenceDocument,),
    "explain": (ExplainDocument,),
    "history": (HistoryDocument,),
    "promote": (PromoteOutcome,),
    "promote-dispatch": (PromoteDispatchDocument,),
    "reindex": (ReindexDocument,),
    "report": (ReportDocument,),
    "rerun": (RerunDocument,),
    "resume": (RoundDocument,),
    "round": (RoundDocument,),
    "status": (
        CampaignStatusDocument,
        PromotionStatusDocument,
        SweepStatusDocument,
        NoRunDocument,
    ),
    "steer": (SteerDocument,),
    "audit": (AuditDocument,),
    "import": (ImportDocument,),
    "score": (ScoreDocument,),
}
"""By command: what it may print; ``schema`` comes first in each."""
