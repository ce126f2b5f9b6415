"""What an external profiler said of the times that a candidate's process claims."""

from __future__ import annotations

from typing import Any, Literal

from ._base import Model
from .verdict import Flag

ConfirmationOutcome = Literal["agreed", "disagreed", "unconfirmed", "not-needed"]
RowOutcome = Literal["agreed", "disagreed", "unconfirmed"]


class ConfirmedWorkload(Model):
    """One workload, medians over calls; kernels alone, copies and fills are not reported."""

    uuid: str
    axes: dict[str, int]
    kernels: int
    """Of one call, as the profiler saw it."""
    claimed_span_us: float
    """Least of what is claimed here and in the comparison."""
    claimed_busy_us: float
    """Sum over kernels."""
    external_us: float
    """The same by the profiler, less its bias: what comes nearest to the claim."""
    external_raw_us: float
    """As it was reported."""
    allowed_us: float
    """How far claim and profiler may lie apart."""
    outcome: RowOutcome
    detail: str = ""
    """Why it is not ``agreed``."""


class Confirmation(Model):
    """One run of archived bytes under an external profiler."""

    outcome: ConfirmationOutcome
    reason: str = ""
    """Why it is not ``agreed``."""
    profiler: str = ""
    version: str = ""
    bias_us: tuple[float, float] | None = None
    """What the profiler adds to each kernel: as measured on kernels of the evaluator, and at
    most."""
    workloads: tuple[ConfirmedWorkload, ...] = ()
    isolation: dict[str, Any] = {}
    """What was in force in the candidate that was profiled."""

    @property
    def flag(self) -> Flag | None:
        """What bars a promotion; None where nothing does."""
        if self.outcome in ("agreed", "not-needed"):
            return None
        code = "timer-disagrees" if self.outcome == "disagreed" else "timer-unconfirmed"
        return Flag(code=code, detail=self.reason)
