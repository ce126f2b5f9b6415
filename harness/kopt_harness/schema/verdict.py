"""What a check can say, and how the verdicts of several workloads combine."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal

from ._base import Model


class Verdict(StrEnum):
    """In the order in which one decides over the others."""

    REJECT = "reject"
    """Evidence of tampering."""
    CRASH = "crash"
    TIMEOUT = "timeout"
    FAIL = "fail"
    """A wrong answer."""
    INVALID = "invalid"
    """The workload or its reference cannot discriminate."""
    INFRA = "infra"
    """Machine, driver, disk, data; never counts for or against a candidate."""
    PASS = "pass"

    @classmethod
    def combine(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The first that occurs in the order above; ``infra`` of nothing at all."""
        present = set(verdicts)
        return next((verdict for verdict in cls if verdict in present), cls.INFRA)


Phase = Literal["build", "load", "check", "bench"]


class Reason(Model):
    """Why a verdict is what it is."""

    code: str
    """Stable, kebab-case."""
    detail: str
    """One sentence for a person."""


class Flag(Model):
    """Keeps the result, bars promotion."""

    code: str
    detail: str


class FirstWrong(Model):
    """The first element that is wrong."""

    output: str
    index: tuple[int, ...]
    expected: float | int | str
    actual: float | int | str


class OutputError(Model):
    """Error statistics of one output."""

    output: str
    max_abs: float | None
    """Null where it is not finite."""
    max_rel: float | None
    matched_ratio: float
    """Share of elements within the rule."""
    ok: bool
    first_wrong: FirstWrong | None = None
    detail: str = ""


class TierResult(Model):
    """One tier of correctness over all outputs of one call."""

    tier: Literal["contest", "strict"]
    verdict: Literal["pass", "fail", "invalid", "n/a"]
    outputs: tuple[OutputError, ...] = ()
    reason: Reason | None = None
    """Set unless the verdict is ``pass``."""


class SolutionRef(Model):
    """A solution by name and content."""

    name: str
    definition: str
    sha256: str


class WorkloadResult(Model):
    """What was found on one workload."""

    uuid: str
    axes: dict[str, int]
    verdict: Verdict
    phase: Phase
    trials: int
    """Distinct input sets whose outputs were compared."""
    reasons: tuple[Reason, ...] = ()
    flags: tuple[Flag, ...] = ()
    tiers: dict[str, TierResult] = {}
    """By tier name: the worst trial."""
    timing: dict[str, Any] | None = None
    """A ``Timing`` as JSON; null where nothing was timed."""


class Evaluation(Model):
    """The document of ``check``, ``gate``, ``sweep`` and ``replay``."""

    schema_: int = 1
    solution: SolutionRef
    target: str
    verdict: Verdict
    phase: Phase
    reasons: tuple[Reason, ...] = ()
    flags: tuple[Flag, ...] = ()
    workloads: tuple[WorkloadResult, ...] = ()
    isolation: dict[str, Any] = {}
    """What was in force."""
    environment: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """The JSON document, with ``schema`` first."""
        data = self.model_dump(mode="json")
        return {"schema": data.pop("schema_"), **data}
