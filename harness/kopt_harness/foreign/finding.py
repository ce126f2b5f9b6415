"""What an audit can find, and what a check is given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from ..schema import Model
from .knowledge import Knowledge
from .record import ForeignResult
from .runs import Group, Run, comparable

__all__ = ["Case", "Finding", "FindingCode", "Severity"]


class Severity(StrEnum):
    """Worst first."""

    WRONG = "wrong"
    """A number, a ranking or a claim that cannot be used as it stands."""
    DOUBTFUL = "doubtful"
    """It may be right, and the file does not show that it is."""
    NOTE = "note"
    """What a reader should know."""


class FindingCode(StrEnum):
    """Stable names; docs/audit.md explains each."""

    INFRA_AS_FAILURE = "infra-as-failure"
    SAME_SOURCE_OTHER_TIME = "same-source-other-time"
    IMPROVEMENT_WITHOUT_CHANGE = "improvement-without-change"
    MIXED_EPOCHS = "mixed-epochs"
    MIXED_HARDWARE = "mixed-hardware"
    MIXED_CLOCKS = "mixed-clocks"
    NOISY_DENOMINATOR = "noisy-denominator"
    UNEQUAL_REFERENCES = "unequal-references"
    SUBSET_CLAIM = "subset-claim"
    FAILURES_LEFT_OUT = "failures-left-out"
    IMPOSSIBLE_LATENCY = "impossible-latency"
    SPEEDUP_MISMATCH = "speedup-mismatch"
    SUMMARY_MISMATCH = "summary-mismatch"
    PARTIAL_SWEEP = "partial-sweep"
    INSIDE_NOISE = "inside-noise"
    NO_REPEATS = "no-repeats"
    MEANS_DISAGREE = "means-disagree"
    SAME_NUMBERS = "same-numbers"
    POSSIBLE_INFRA = "possible-infra"
    MIXED_SOFTWARE = "mixed-software"
    NO_SPREAD = "no-spread"
    NO_ENVIRONMENT = "no-environment"
    NO_SOURCE = "no-source"
    NO_VERDICT = "no-verdict"
    NO_TIMESTAMP = "no-timestamp"
    UNKNOWN_DEFINITION = "unknown-definition"
    UNKNOWN_WORKLOADS = "unknown-workloads"


class Finding(Model):
    """One doubt about what was read."""

    code: FindingCode
    severity: Severity
    detail: str
    """One sentence with its numbers."""
    evidence: tuple[str, ...]
    """Places, as ``file:position``."""
    figures: dict[str, float] = {}
    """The numbers of the sentence, for programs."""


@dataclass(frozen=True)
class Case:
    """What a check looks at."""

    results: tuple[ForeignResult, ...]
    runs: tuple[Run, ...]
    knowledge: Knowledge

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Runs that can be compared."""
        return comparable(self.runs)
