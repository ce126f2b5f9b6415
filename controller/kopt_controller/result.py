"""What a round leaves behind: the record in the journal, and the document of ``kopt round``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import Comparison, Flag, GateResult, Model, Reason, SweepResult, Verdict
from pydantic import ValidationError

from .costs import Usage
from .state import State
from .steering import Steer

__all__ = [
    "Action",
    "Attribution",
    "Candidate",
    "CandidateRef",
    "Choice",
    "Condition",
    "Debate",
    "Decision",
    "Factor",
    "Label",
    "Position",
    "PromoteOutcome",
    "PromotionRecord",
    "Ranked",
    "Refusal",
    "Review",
    "RoundResult",
    "Signal",
    "Standing",
    "SweepSummary",
    "gate_document",
    "promoted_candidate",
    "sweep_summary",
]

Standing = Literal["chosen", "empty", "refused", "open", "blocked", "excluded"]
Label = Literal["promote", "promote-dispatch", "archive", "reject"]
Attribution = Literal["direction", "joint"]
"""To what the effect of a candidate is put down: to the levers of the direction alone, or to them
together with something else that was changed as well."""


class Condition(Model):
    """One condition of a promotion, with its number."""

    name: str
    required: str
    measured: str
    ok: bool


class Decision(Model):
    """What closes a round."""

    label: Label
    code: str
    """Stable, kebab-case: why."""
    reason: str
    """One sentence for a person."""
    evidence: tuple[Condition, ...] = ()


class Factor(Model):
    """One of the numbers whose product is the score of a direction."""

    name: str
    value: float
    reason: str
    """Where the number comes from, for a person."""


class Choice(Model):
    """The direction of a round, and why."""

    id: str
    title: str
    score: float
    """Product of the factors; for ordering only."""
    reason: str
    expected_effect: str = ""
    levers: tuple[str, ...] = ()
    regime: str = ""
    """The regime in which most is expected of it; empty where there is none."""
    factors: tuple[Factor, ...] = ()


class Ranked(Model):
    """What became of one direction of the catalogue in the selection of a round."""

    id: str
    title: str
    standing: Standing
    """``empty``: its turn came, and nobody had a candidate; ``refused``: all that was proposed
    had been rejected before; ``open``: another one came first; ``blocked``: by the supervisor
    or a person; ``excluded``: it does not fit the state."""
    score: float
    """0 where it was blocked or excluded."""
    regime: str = ""
    factors: tuple[Factor, ...] = ()
    reason: str


class CandidateRef(Model):
    """A solution by name and content."""

    name: str
    sha256: str


class Refusal(Model):
    """A candidate that was not measured, since one like it was rejected before."""

    name: str
    sha256: str
    of: CandidateRef
    """What was rejected."""
    run: str
    round: int
    """Where."""
    similarity: float
    """1: the same but for names and layout."""
    detail: str
    """With the old evidence, for a person and for the agent."""


class Candidate(Model):
    """One proposed solution and what the gate said."""

    name: str
    sha256: str
    language: str
    family: str | None = None
    """Solution folder it was packed from; null for one from elsewhere."""
    settings: dict[str, Any] = {}
    """Values of its tunables."""
    technique: str = ""
    """What was done to get it, in a word or two; evidence is kept by it."""
    attribution: Attribution | None = None
    """Of its effect; null where the agent does not say, as those that write code do not."""
    rationale: str = ""
    verdict: Verdict
    gate: dict[str, Any]
    """``passed``, ``reason``, ``phase``, ``reasons``, ``flags``, ``comparison``."""

    @property
    def passed(self) -> bool:
        """Whether the gate let it through."""
        return bool(self.gate["passed"])

    @property
    def ratio(self) -> float | None:
        """Mean latency over that of the incumbent, on the representatives."""
        comparison = self.gate["comparison"]
        return None if comparison is None else comparison["ratio"]

    @property
    def ci(self) -> tuple[float, float] | None:
        """Interval of the ratio."""
        comparison = self.gate["comparison"]
        found = None if comparison is None else comparison["ci"]
        return None if found is None else (found[0], found[1])


class SweepSummary(Model):
    """A sweep without its samples, which the journal has."""

    verdict: Verdict
    complete: bool
    workloads: int
    reasons: tuple[Reason, ...]
    flags: tuple[Flag, ...]
    comparison: Comparison | None


class PromotionRecord(Model):
    """What became of a decision to promote."""

    mode: Literal["auto", "ask", "command"]
    applied: bool
    detail: str
    """What was written, or why nothing was and what to do."""


class PromoteOutcome(Model):
    """What ``kopt promote`` found and did: the last record of its run."""

    run: str
    definition: str
    target: str
    candidate: CandidateRef
    incumbent: CandidateRef
    """What it was compared with."""
    incumbent_after: CandidateRef
    ratio: float | None
    """Mean latency over that of the incumbent, in the sweep of this command."""
    ci: tuple[float, float] | None
    conditions: tuple[Condition, ...]
    overridden: tuple[str, ...]
    """Flags that a person has accepted."""
    applied: bool
    detail: str

    def document(self) -> dict[str, Any]:
        """The JSON of DESIGN section 7."""
        return self.model_dump(mode="json")


class Signal(Model):
    """Something that the supervisor noticed."""

    kind: Literal["stall", "exhausted", "cycle", "regression", "plateau", "diminishing-returns"]
    detail: str
    directions: tuple[str, ...] = ()
    """Directions that are blocked because of it."""


class Action(Model):
    """What the supervisor does about a signal."""

    kind: Literal["block", "recommend", "widen", "ask"]
    directions: tuple[str, ...] = ()
    because: str
    """Kind of the signal."""


class Review(Model):
    """What an independent reader says of a candidate: it may hold up, and never approves."""

    candidate: CandidateRef
    by: str
    verdict: Literal["ok", "flag", "none"]
    """``none``: there was no answer that could be read."""
    reasons: tuple[str, ...]
    usage: tuple[Usage, ...] = ()


class Position(Model):
    """What one side of a debate says."""

    by: str
    direction: str | None
    """That it would take; null: none that there is."""
    argument: str


class Debate(Model):
    """Two positions before each side knew the other's, and two after."""

    opening: tuple[Position, ...]
    closing: tuple[Position, ...]
    agreed: str | None
    """Direction that both would take in the end; null: a person has to say."""
    usage: tuple[Usage, ...] = ()


class RoundResult(Model):
    """One closed round."""

    round: int
    definition: str
    target: str
    state: State
    direction: Choice
    candidates: tuple[Candidate, ...]
    best: CandidateRef | None
    """The candidate that was swept."""
    sweep: SweepSummary | None
    decision: Decision
    promotion: PromotionRecord | None
    """Null unless the decision is to promote."""
    incumbent_before: CandidateRef
    incumbent: CandidateRef
    """After the round."""
    signals: tuple[Signal, ...]
    """What the supervisor says after this round."""
    notes: tuple[str, ...] = ()
    """What the agent had to say: files it could not use, and the like."""
    ranking: tuple[Ranked, ...] = ()
    """Every direction in the order of the selection; empty in rounds of an older version."""
    refused: tuple[Refusal, ...] = ()
    """What was proposed and not measured."""
    actions: tuple[Action, ...] = ()
    """What the supervisor does about the signals, from the next round on."""
    steers: tuple[Steer, ...] = ()
    """What people had said until this round began."""
    rung: str | None = None
    """Of the plateau ladder that this round stood on."""
    policy: str = "assisted"
    """How the campaign searched."""
    parent: CandidateRef | None = None
    """What the agent started from, where that was not the incumbent."""
    committed: bool = False
    """Whether the next round starts from the candidate without a promotion."""
    review: Review | None = None
    debate: Debate | None = None

    def document(self) -> dict[str, Any]:
        """The JSON of one round, see DESIGN section 7."""
        data = self.model_dump(mode="json")
        data["state"] = self.state.document()
        return data


def gate_document(result: GateResult) -> dict[str, Any]:
    """The part of a gate that a round's document carries."""
    data = result.model_dump(mode="json", include={"passed", "reason", "comparison"})
    evaluation = result.evaluation.model_dump(mode="json", include={"phase", "reasons", "flags"})
    return data | evaluation


def sweep_summary(result: SweepResult) -> SweepSummary:
    """The part of a sweep that a round's document carries."""
    evaluation = result.evaluation
    return SweepSummary(
        verdict=evaluation.verdict,
        complete=result.complete,
        workloads=len(evaluation.workloads),
        reasons=evaluation.reasons,
        flags=evaluation.flags,
        comparison=result.comparison,
    )


def promoted_candidate(run_id: str, manifest: Mapping[str, Any]) -> CandidateRef:
    """What the run of a ``kopt promote`` is about.

    Raises:
        InvalidInputError: If the manifest is not that of one.
    """
    try:
        for name in ("created", "definition", "target"):
            str(manifest[name])
        return CandidateRef(name=manifest.get("candidate_name", ""), sha256=manifest["candidate"])
    except (KeyError, ValidationError) as error:
        raise InvalidInputError(
            f"the run {run_id!r} is no promotion: {error}", hint="kopt history lists the runs"
        ) from error
