"""Of commands that look at what is here, and of those that make files."""

from __future__ import annotations

from typing import Any

from kopt_harness.lint.report import Finding as LintFinding
from kopt_harness.schema import (
    Model,
    Solution,
    SolutionRef,
)

__all__ = [
    "DefinitionRow",
    "DefinitionsDocument",
    "DoctorDocument",
    "ErrorDocument",
    "ExportDefinitionDocument",
    "ExportSolutionDocument",
    "ExportTraceSetDocument",
    "NewDocument",
    "PackDocument",
    "RegimeRow",
    "UnpackDocument",
    "WorkloadRow",
    "WorkloadsDocument",
]


class ErrorDocument(Model):
    """Of any command that could not do what it was asked; the exit code is 2, 3 or 130."""

    error: str
    hint: str
    """What to do next."""


class DefinitionRow(Model):
    """One operator."""

    id: str
    alias: str
    op_type: str
    workloads: int
    """How many."""
    solutions: tuple[str, ...]
    """Names of the folders that ship."""
    description: str


class DefinitionsDocument(Model):
    """The operators that are here."""

    definitions: tuple[DefinitionRow, ...]


class WorkloadRow(Model):
    """One size."""

    index: int
    uuid: str
    axes: dict[str, int]
    regime: str
    bytes: int
    """That must be moved at least."""
    flops: int


class RegimeRow(Model):
    """Workloads of like cost."""

    name: str
    workloads: int
    representatives: tuple[int, ...]
    """Indices."""
    bytes: tuple[int, int]
    """Least and most."""
    flops: tuple[int, int]


class WorkloadsDocument(Model):
    """The sizes of one definition."""

    definition: str
    workloads: tuple[WorkloadRow, ...]
    regimes: tuple[RegimeRow, ...]


class DoctorDocument(Model):
    """What this machine can do."""

    targets: tuple[dict[str, Any], ...]
    """Name, whether it is present and why not, languages that build and run."""
    tools: tuple[dict[str, Any], ...]
    """Name, kind, version, whether it is there, and how to get it."""
    isolation: dict[str, Any]
    """What the kernel grants to the sandbox."""
    quarantine: tuple[dict[str, Any], ...]
    """Devices that are out of use, with the reason."""
    disk: dict[str, Any]
    platform: dict[str, Any]


class NewDocument(Model):
    """A solution folder that was begun."""

    solution: SolutionRef
    language: str
    origin: str
    """What it was copied from."""
    folder: str


class PackDocument(Model):
    """A packed solution, and what is doubtful in its sources."""

    solution: SolutionRef
    language: str
    entry_point: str
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    output: str | None
    """The file that was written."""


class UnpackDocument(Model):
    """A folder that was written."""

    solution: SolutionRef
    folder: str
    notes: tuple[str, ...]


class ExportDefinitionDocument(Model):
    """A definition as the contest's tools read it; with ``-o`` name and file instead."""

    definition: dict[str, Any]


class ExportSolutionDocument(Model):
    """A packed solution; with ``-o`` name and file instead."""

    solution: Solution


class ExportTraceSetDocument(Model):
    """A folder with inputs of workloads."""

    definition: str
    solution: str | None
    output: str
    seed: int
    workloads: tuple[str, ...]
    bytes: int
