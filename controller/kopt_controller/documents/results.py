"""Of commands that sum up results, ours and other people's."""

from __future__ import annotations

from typing import Any

from kopt_harness.foreign.finding import Finding
from kopt_harness.foreign.read import FileSummary
from kopt_harness.foreign.record import Problem
from kopt_harness.schema import (
    Model,
)

__all__ = [
    "AuditDocument",
    "ImportDocument",
    "ReportDocument",
    "ScoreDocument",
    "ScoreRow",
    "TrackRow",
    "UnscoredRow",
]


class ReportDocument(Model):
    """What was written, and what it says in short."""

    chapters: tuple[dict[str, Any], ...]
    """One for each definition on one target: runs, rounds, candidates, evaluations, headline."""
    imported: int
    """Results of other programs."""
    files: tuple[str, ...]


class ScoreRow(Model):
    """One definition."""

    id: str
    score: float
    """Mean over the workloads of baseline over solution; 0 if one failed."""
    ratio_of_means: float | None
    workloads: int
    baseline: str
    target: str
    solution: dict[str, str]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    foreign: bool
    file: str


class TrackRow(Model):
    """One track of the contest."""

    name: str
    score: float
    expected: int
    """Definitions."""
    absent: tuple[str, ...]


class UnscoredRow(Model):
    """A definition of which there is evidence, and no time of the baseline."""

    id: str
    file: str
    reason: str
    hint: str
    """How to measure it."""


class ScoreDocument(Model):
    """Official scores."""

    definitions: tuple[ScoreRow, ...]
    tracks: tuple[TrackRow, ...]
    unscored: tuple[UnscoredRow, ...]
    """In its track such a definition is absent."""


class AuditDocument(Model):
    """What is wrong or doubtful in other programs' results."""

    files: tuple[FileSummary, ...]
    results: int
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]


class ImportDocument(Model):
    """What was taken in."""

    results: int
    added: int
    known: int
    files: tuple[FileSummary, ...]
    problems: tuple[Problem, ...]
