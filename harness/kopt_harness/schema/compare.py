"""Paired comparisons, and the gate and sweep results that carry them."""

from __future__ import annotations

from typing import Any, Literal

from ._base import Model
from .verdict import Evaluation, Reason, SolutionRef

ComparisonDecision = Literal["faster", "slower", "same", "ambiguous"]


class PairedBlock(Model):
    """One ABBA block: both solutions, alternating, under one lease."""

    a_ns: tuple[int, ...]
    b_ns: tuple[int, ...]


class WorkloadComparison(Model):
    """Two solutions on one workload."""

    uuid: str
    axes: dict[str, int]
    a_median_us: float | None
    b_median_us: float | None
    ratio: float | None
    """Mean of B over mean of A; below 1, B is faster. Null without samples."""
    ci: tuple[float, float] | None
    n: int
    """Number of paired blocks."""


class Comparison(Model):
    """The document of ``compare``: ratio = mean latency of B / mean latency of A."""

    a: SolutionRef
    b: SolutionRef
    target: str
    epoch: str
    ratio: float | None
    ci: tuple[float, float] | None
    confidence: float
    margin: float
    """Relative difference that counts as the same."""
    decision: ComparisonDecision
    reason: str = ""
    """Why the decision is ``ambiguous``; empty otherwise."""
    a_mean_us: float | None = None
    b_mean_us: float | None = None
    workloads: tuple[WorkloadComparison, ...] = ()

    def document(self) -> dict[str, Any]:
        """The JSON document of ``kopt compare``."""
        return {"schema": 1, **self.model_dump(mode="json")}


class GateResult(Model):
    """A candidate against the incumbent on representative workloads."""

    evaluation: Evaluation
    comparison: Comparison | None
    """Null where the candidate is not correct."""
    passed: bool
    """Correct, and not shown to be slower."""
    reason: Reason


class BestBaseline(Model):
    """The fastest peer of each workload, as if one solution chose among them."""

    ratio: float | None
    """Its mean latency over that of the solution; above 1, the solution is faster."""
    ci: tuple[float, float] | None
    per_workload_min: float | None
    """The least ratio of a single workload."""
    reason: str = ""
    """Why these are null; empty otherwise."""
    fastest: dict[str, str] = {}
    """Name of the peer by workload uuid."""


class SweepResult(Model):
    """A candidate against the incumbent on every workload."""

    evaluation: Evaluation
    comparison: Comparison | None
    complete: bool
    """Whether every workload has a verdict and, where timed, a timing of both solutions."""
    baselines: dict[str, Comparison] = {}
    """By name of the baseline, which is A; B is the candidate."""
    best_baseline: BestBaseline | None = None
    """Null where no peer was timed; the reference is none."""
