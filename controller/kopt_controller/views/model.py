"""What a view of the archive is made of: plain frozen data with units in the names.

Start reading at ``Chapter``: everything that is known of one definition on one target. Ratios are
the time of the newer solution over that of the older one, so below 1 is faster, but for those of
baselines (``over_us``), which are baseline over solution. What nobody has measured is null.
"""

from __future__ import annotations

from typing import Any, Literal

from kopt_harness.schema import Model
from pydantic import ConfigDict

__all__ = [
    "Asked",
    "BlockSamples",
    "CandidatePoint",
    "Chapter",
    "Command",
    "Cost",
    "DecisionView",
    "DirectionRow",
    "EfficiencyRow",
    "EnvironmentView",
    "EvaluationTable",
    "Hardware",
    "Headline",
    "Interval",
    "RegimeView",
    "RoundPoint",
    "Standing",
    "SteerPoint",
    "Subject",
    "View",
    "WorkloadRow",
]


class View(Model):
    """The base: what is shown is made often and described nowhere, so docstrings stay here."""

    model_config = ConfigDict(use_attribute_docstrings=False)


Interval = tuple[float, float]
Outcome = Literal["faster", "slower", "undecided", "wrong", "not-judged"]


class Subject(View):
    """The operator."""

    id: str
    alias: str
    op_type: str
    description: str
    workloads: int
    primary_axis: str | None
    """By which sizes are told apart first; null where the definition is not here any more."""
    axes: tuple[str, ...]
    """Those that vary."""


class Hardware(View):
    """The target, and the figures that floors rest on."""

    name: str
    description: str
    copy_gbps: float | None = None
    peak_tflops: float | None = None
    """The highest of its peaks, as floors use it."""
    launch_us: float | None = None
    sources: tuple[str, ...] = ()
    """Of each figure that is known."""


class Asked(View):
    """What one run was to do."""

    run: str
    created: str
    agent: str
    policy: str
    mode: str
    """Of promotion."""
    rounds_planned: int
    rounds_closed: int
    state: str
    """``running``, ``finished`` or ``interrupted``."""
    incumbent: str
    search_seed: int | None
    versions: dict[str, str]
    conditions: dict[str, Any]
    """Rules of a promotion that differ from the defaults."""
    measure: dict[str, Any]
    """Options of measuring that differ from the defaults."""


class EnvironmentView(View):
    """One epoch: a state of one device."""

    epoch: str
    device: str
    seen: str
    """When it was noted first."""
    fields: dict[str, str]
    """All that was recorded, nested names joined with a dot."""


class Standing(View):
    """A solution by name and content."""

    name: str
    sha256: str


class Headline(View):
    """The one number of a chapter, and what it stands on."""

    candidate: Standing
    incumbent: Standing
    """What it was compared with."""
    ratio: float | None
    """Mean latency of the candidate over that of the incumbent."""
    ci: Interval | None
    confidence: float
    candidate_mean_us: float | None
    incumbent_mean_us: float | None
    workloads: int
    decision: str
    """Label of the decision that closed it."""
    reason: str
    applied: bool
    """Whether the candidate became the incumbent."""
    committed: bool = False
    """Whether a line took it as its newest version, without a promotion at that time."""
    date: str
    epoch: str
    source: str
    """``RUN/ROUND``, or the folder of the evidence."""
    provisional: bool = False
    limits: str = ""
    """What limits it now, one sentence."""

    @property
    def is_decided(self) -> bool:
        """Whether the interval tells the two apart; without one nothing does."""
        return self.ci is not None and not self.ci[0] <= 1 <= self.ci[1]

    @property
    def became(self) -> str:
        """What the candidate became, in words; empty where it became nothing."""
        if self.applied:
            return "became the incumbent"
        if not self.committed:
            return ""
        waits = "waits for kopt promote" if self.decision == "promote" else "not promoted"
        return f"newest version of the line, {waits}"


class EfficiencyRow(View):
    """One solution, or the floor, over all workloads of the headline."""

    role: Literal["candidate", "incumbent", "baseline", "floor"]
    name: str
    mean_us: float | None
    median_us: float | None
    """Over workloads, as the next."""
    p95_us: float | None
    """Nearest rank: the smallest value with 95 % of the workloads at or below it."""
    speedup: float | None
    """Its mean over that of the candidate: above 1 the candidate is faster."""
    ci: Interval | None
    x_floor: float | None
    """Mean over the mean of the floors; null where no floor is known."""
    gbps: float | None
    """Compulsory bytes of all workloads over the time of all."""
    workloads: int
    """That it has a time for."""


class WorkloadRow(View):
    """The pair on one workload."""

    uuid: str
    index: int | None
    axes: dict[str, int]
    regime: str
    verdict: str
    candidate_us: float | None
    incumbent_us: float | None
    ratio: float | None
    ci: Interval | None
    blocks: int
    """Paired blocks; 0 where the evidence does not say."""
    slower: bool
    floor_us: float | None
    floor_by: str
    """``memory``, ``compute`` or ``launch``; empty where there is no floor."""
    bytes: int | None
    """Compulsory, by the cost model."""
    flops: int | None
    baselines_us: dict[str, float] = {}

    @property
    def x_floor(self) -> float | None:
        """Time of the candidate over the floor."""
        if not self.floor_us or self.candidate_us is None:
            return None
        return self.candidate_us / self.floor_us

    @property
    def size(self) -> str:
        """The axes as text."""
        return ", ".join(f"{name}={value}" for name, value in self.axes.items())


class RegimeView(View):
    """What limited the incumbent in one regime, in the last round."""

    regime: str
    workloads: int
    time_share: float | None
    bottleneck: str
    basis: str
    dominant_kernel: str | None
    dominant_share: float | None
    launches: int | None
    x_floor: float | None
    diagnosis: str


class RoundPoint(View):
    """One closed round in the trajectory."""

    order: int
    """Position among all rounds of the chapter, from 1."""
    run: str
    round: int
    time: str
    """When it was closed; empty where it is not known."""
    direction: str
    regime: str
    bottleneck: str
    candidates: int
    passed: int
    refused: int
    label: str
    applied: bool
    """Whether the incumbent moved, also by a later ``kopt promote``."""
    ratio: float | None
    ci: Interval | None
    incumbent: Standing
    """After it."""
    best: float | None
    """Time of the incumbent after it, over that of the first incumbent of its segment."""
    segment: int
    """Rounds whose incumbents follow from each other; another one begins where they do not."""


class CandidatePoint(View):
    """One candidate of one round."""

    order: int
    """Of its round."""
    run: str
    round: int
    name: str
    sha256: str
    language: str
    technique: str
    direction: str
    verdict: str
    passed: bool
    swept: bool
    promoted: bool
    outcome: Outcome
    ratio: float | None
    """To the incumbent of its round: of the sweep where it had one, else of the gate."""
    ci: Interval | None
    level: float | None
    """``ratio`` times what its incumbent took of the first one's time."""
    detail: str
    flags: tuple[str, ...]


class SteerPoint(View):
    """One thing that a person said."""

    order: int
    """Of the first round that heard it; 0 where none has yet."""
    run: str
    time: str
    kind: str
    value: str
    by: str


class DecisionView(View):
    """How one round or promotion was closed."""

    source: str
    """``RUN/ROUND``, the run of a ``kopt promote``, or the folder of the evidence."""
    time: str
    candidate: Standing | None
    label: str
    code: str = ""
    """Of a round's decision; a ``kopt promote`` has none."""
    reason: str
    conditions: tuple[dict[str, Any], ...]
    """``name``, ``required``, ``measured``, ``ok``."""
    flags: tuple[str, ...]
    overridden: tuple[str, ...]
    by: str
    """Who, where a person was asked."""
    applied: bool
    detail: str


class DirectionRow(View):
    """One optimisation direction over all rounds of the chapter."""

    direction: str
    title: str
    rounds: int
    tried: int
    faster: int
    undecided: int
    slower: int
    wrong: int
    not_judged: int
    refused: int
    """Not measured, since one like it was rejected before."""
    promoted: int
    best_ratio: float | None
    best_ci: Interval | None


class BlockSamples(View):
    """The samples of a pair on one workload, all blocks together."""

    uuid: str
    axes: dict[str, int]
    """Empty where only samples were asked for."""
    blocks: int
    candidate_ns: tuple[int, ...]
    incumbent_ns: tuple[int, ...]


class Cost(View):
    """One row of the cost ledger."""

    what: str
    amount: float
    unit: str


class Command(View):
    """A command line that makes something of the chapter again."""

    why: str
    line: str


class EvaluationTable(View):
    """Every evaluated workload, column by column: tens of thousands of rows stay small."""

    solutions: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    rows: tuple[tuple[int, int, int, int, int, float | None], ...] = ()
    """Order of the round (0: of none), then indices of the above, then the median in us."""
    in_all: int = 0
    """Rows that there are; more than are here where they were limited."""


class Chapter(View):
    """All that is known of one definition on one target, or of one run."""

    subject: Subject
    hardware: Hardware
    runs: tuple[Asked, ...]
    environments: tuple[EnvironmentView, ...]
    headline: Headline | None
    """Null where no sweep has compared anything yet."""
    efficiency: tuple[EfficiencyRow, ...]
    workloads: tuple[WorkloadRow, ...]
    regimes: tuple[RegimeView, ...]
    rounds: tuple[RoundPoint, ...]
    candidates: tuple[CandidatePoint, ...]
    steers: tuple[SteerPoint, ...]
    samples: tuple[BlockSamples, ...]
    decisions: tuple[DecisionView, ...]
    directions: tuple[DirectionRow, ...]
    costs: tuple[Cost, ...]
    """Empty where no ledger was kept."""
    reproduce: tuple[Command, ...]
    evaluations: EvaluationTable
    problems: tuple[str, ...]
    """What could not be read, and what is missing."""
