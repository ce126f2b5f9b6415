"""What comes of a request to a worker: an outcome, a verdict, or an error of the machine."""

from __future__ import annotations

from typing import Any, NamedTuple

from kopt_harness.errors import InfraError, KoptError, TransientError, UnavailableError
from kopt_harness.schema import Flag, Phase, Reason, TierResult, Verdict
from kopt_harness.worker.spawn import WorkerFailedError

__all__ = [
    "CallOutcome",
    "CandidateFailedError",
    "candidate_failed",
    "infra",
    "judge_failed",
    "machine_failed",
]


class CandidateFailedError(Exception):
    """The candidate earned a verdict other than ``pass``."""

    def __init__(
        self,
        verdict: Verdict,
        phase: Phase,
        reason: Reason,
        tiers: dict[str, TierResult] | None = None,
    ) -> None:
        super().__init__(reason.detail)
        self.verdict = verdict
        self.phase = phase
        self.reason = reason
        self.tiers = tiers or {}
        """Of the comparison that failed; empty where none was made."""


class CallOutcome(NamedTuple):
    """One call that was correct."""

    ns: int | None
    """The candidate's claim; None where the call was not timed."""
    wall_ns: int
    """The call by the orchestrator's clock, with one message in each direction."""
    details: dict[str, Any]
    """What the timer says beside the span."""
    tiers: dict[str, TierResult]
    noise_ns: int = 0
    """What a short exchange with the judge took right before it: how busy the machine is."""
    flags: tuple[Flag, ...] = ()
    """Of this call; ``conduct.weighed`` says which of them count."""


def candidate_failed(
    error: WorkerFailedError, phase: Phase, *, has_records: bool
) -> CandidateFailedError:
    """The verdict on a candidate whose process failed.

    Candidate code can send what it likes, so that it cannot blame the machine for its own
    faults. Only a timer that reads a device's records may lose them: that is a verdict on
    nobody (``infra``), and of this candidate alone, others go on.

    Args:
        error: what the process did.
        phase: in which.
        has_records: whether the target's timer reads a device's records.
    """
    if error.kind == "infra" and has_records:
        reason = Reason(code="timer-failed", detail=error.detail)
        return CandidateFailedError(Verdict.INFRA, phase, reason)
    code = {"timeout": "no-answer", "crash": "process-ended"}.get(error.kind, "exception")
    verdict = Verdict.TIMEOUT if error.kind == "timeout" else Verdict.CRASH
    reason = Reason(code=error.code or code, detail=error.detail)
    return CandidateFailedError(verdict, phase, reason)


def infra(what: str, error: WorkerFailedError) -> InfraError:
    """What failed, and what the worker said; one that is gone says nothing of the next."""
    kind = TransientError if error.kind in ("crash", "lost", "timeout") else InfraError
    return kind(f"{what}: {error.detail}", hint="try again; kopt doctor checks the machine")


def judge_failed(what: str, error: WorkerFailedError) -> KoptError:
    """No candidate code runs there: what it says of the machine or the definition is so."""
    if error.kind == "unavailable":
        hint = "see kernels/README.md for a definition, kopt doctor for this machine"
        return UnavailableError(f"{what}: {error.detail}", hint=hint)
    return infra(what, error)


def machine_failed(error: WorkerFailedError) -> KoptError:
    """What the worker, not the candidate's code, says of this machine."""
    if error.kind == "infra":
        return InfraError(error.detail, hint="try again; kopt doctor checks the machine")
    return UnavailableError(error.detail, hint="kopt doctor says what this machine has")
