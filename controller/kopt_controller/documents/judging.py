"""Of commands that check, time and profile."""

from __future__ import annotations

from typing import Any

from kopt_harness.calibrate import WorkloadCalibration
from kopt_harness.schema import (
    Comparison,
    Evaluation,
    Flag,
    Model,
    Phase,
    Profile,
    Reason,
    SolutionRef,
    Verdict,
)
from kopt_harness.trials import Failure

__all__ = [
    "BenchDocument",
    "CalibrateDocument",
    "DiagnoseDocument",
    "GateDocument",
    "OfficialDocument",
    "ProfileDocument",
    "ReplayDocument",
    "SweepDocument",
]


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
