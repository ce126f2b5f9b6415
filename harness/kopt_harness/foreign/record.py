"""What one foreign result is, and where it came from."""

from __future__ import annotations

from typing import Any, Literal

from ..schema import Model

__all__ = ["ForeignResult", "Kind", "Outcome", "Place", "Problem", "outcome_of"]

Kind = Literal["workload", "mean", "selected", "summary"]
"""``workload``: one solution on one workload. ``mean``: one evaluation over several workloads,
of which only the mean was kept. ``selected``: a search says that this evaluation is its best so
far. ``summary``: what a file says about the entries that it also lists."""

Outcome = Literal["passed", "failed", "unknown"]

_PASSED = frozenset({"correct", "ok", "pass", "passed", "success"})


class Place(Model):
    """Where in which file something stands."""

    file: str
    """As it was named."""
    position: str
    """Line number, index, or keys separated by slashes."""

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


class Problem(Model):
    """An entry or a file that could not be read."""

    file: str
    position: str
    """Empty where it is the whole file."""
    detail: str
    """One sentence for a person."""


class ForeignResult(Model):
    """One result that somebody else measured."""

    foreign: Literal[True] = True
    """Written with it wherever it goes: never evidence for a promotion."""
    reader: str
    kind: Kind
    solution: str = ""
    """Name; empty where the file has none."""
    source_sha256: str | None = None
    """Content of the solution, where the file has a hash."""
    definition: str = ""
    """As written; see ``Knowledge.definition``."""
    workload: str | None = None
    """uuid; null where several workloads are meant."""
    axes: dict[str, int] = {}
    workload_count: int | None = None
    """How many workloads a mean is said to cover."""
    status: str = ""
    """As written."""
    outcome: Outcome = "unknown"
    message: str = ""
    """What was said about a failure."""
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    speedup: float | None = None
    """As written, not computed."""
    score: float | None = None
    """What the file's own search ranks by."""
    samples: int | None = None
    """How many calls the latency stands for, where the file says so."""
    environment: dict[str, Any] = {}
    timestamp: str | None = None
    place: Place
    extra: dict[str, Any] = {}
    """Everything else that the entry had."""

    @property
    def timed(self) -> bool:
        """Whether it is a time of a solution that is not known to be wrong."""
        return self.latency_ms is not None and self.outcome != "failed"


def outcome_of(status: str) -> Outcome:
    """What a status says, in whatever words; anything that is not a success is a failure."""
    if not status:
        return "unknown"
    return "passed" if status.casefold() in _PASSED else "failed"
