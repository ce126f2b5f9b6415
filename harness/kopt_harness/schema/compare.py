"""Paired comparisons, and the gate and sweep results that carry them."""

from __future__ import annotations

from typing import Any, Literal

from ._base import Model
from .build import BuildResult
from .confirm import Confirmation
from .verdict import Evaluation, Reason, SolutionRef

ComparisonDecision = Literal["faster", "slower", "same", "ambiguous"]


BlockOrder = Literal["abba", "baab"]
MarginSource = Literal["given", "noise-floor", "default"]
"""``given`` by the user, the ``noise-floor`` of this epoch, or the ``default`` without one."""


class PairedBlock(Model):
    """One block of four slots: both solutions, alternating, under one lease."""

    a_ns: tuple[int, ...]
    """The two slots of A one after the other, in the order of the calls."""
    b_ns: tuple[int, ...]
    order: BlockOrder = "abba"
    """Which solution was in which slot."""


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
    p_slower: float | None = None
    """Holm-adjusted: of so large a ratio, were B slower by no more than the margin."""
    slower: bool = False
    """Whether B is slower here by more than the margin, at 5 % over all workloads together."""


class SecondaryRatios(Model):
    """Ratios of B to A beside that of the means; below 1, B is faster."""

    median: float
    """Median over workloads."""
    p95: float
    """95th percentile over workloads, the higher of two neighbours."""
    worst: float
    """Largest over workloads."""
    regimes: dict[str, float]
    """Ratio of mean latencies in each regime."""
    worst_regime: str
    worst_regime_ratio: float


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
    margin_source: MarginSource = "given"
    decision: ComparisonDecision
    reason: str = ""
    """Why the decision is ``ambiguous``; empty otherwise."""
    a_mean_us: float | None = None
    b_mean_us: float | None = None
    looks: int = 1
    """How often the data was looked at; ``ci`` has the confidence of the last look."""
    processes: int = 1
    """Pairs of processes that were timed, one after the other."""
    secondary: SecondaryRatios | None = None
    """Null where the comparison has no ratio."""
    workloads: tuple[WorkloadComparison, ...] = ()
    deviations: dict[str, Reason] = {}
    """The first that a tier has against a library's peer, which is timed all the same, by its
    name; of the contest's rule rather than of the strict tier."""

    @property
    def regressions(self) -> tuple[WorkloadComparison, ...]:
        """Workloads on which B is slower by more than the margin."""
        return tuple(row for row in self.workloads if row.slower)

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


class Validation(Model):
    """A candidate built again from archived bytes, and judged once more by new processes."""

    built: BuildResult
    """Out of an empty cache; without its place."""
    gate: GateResult | None
    """On representative workloads, with new inputs; null where it does not build."""
    confirmation: Confirmation | None = None
    """By an external profiler; null where the gate was not passed."""


class SweepResult(Model):
    """A candidate against the incumbent on every workload."""

    evaluation: Evaluation
    comparison: Comparison | None
    built: BuildResult | None = None
    """What was swept, without log and place; null where it did not get so far."""
    complete: bool
    """Whether every workload has a verdict and, where timed, a timing of both solutions."""
    baselines: dict[str, Comparison] = {}
    """By name of the baseline, which is A; B is the candidate."""
    best_baseline: BestBaseline | None = None
    """Null where no peer was timed; the reference is none."""
