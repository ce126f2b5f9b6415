"""Frozen models of everything that crosses a file or process boundary."""

from __future__ import annotations

from ._base import SCHEMA_VERSION, Model
from .build import Artefact, BuildResult
from .compare import (
    BestBaseline,
    BlockOrder,
    Comparison,
    ComparisonDecision,
    GateResult,
    MarginSource,
    PairedBlock,
    SecondaryRatios,
    SweepResult,
    Validation,
    WorkloadComparison,
)
from .confirm import Confirmation, ConfirmationOutcome, ConfirmedWorkload, RowOutcome
from .definition import (
    ITEM_BYTES,
    Axis,
    ContestTolerance,
    Definition,
    DType,
    KoptSection,
    StrictBound,
    TensorShape,
    TensorSpec,
    Workload,
)
from .profile import CompiledKernel, Profile, ProfiledKernel
from .solution import BuildSpec, Solution, SourceFile
from .timing import CacheState, Timer, Timing
from .verdict import (
    Evaluation,
    FirstWrong,
    Flag,
    OutputError,
    Phase,
    Reason,
    SolutionRef,
    TierResult,
    Verdict,
    WorkloadResult,
)

__all__ = [
    "ITEM_BYTES",
    "SCHEMA_VERSION",
    "Artefact",
    "Axis",
    "BestBaseline",
    "BlockOrder",
    "BuildResult",
    "BuildSpec",
    "CacheState",
    "Comparison",
    "ComparisonDecision",
    "CompiledKernel",
    "Confirmation",
    "ConfirmationOutcome",
    "ConfirmedWorkload",
    "ContestTolerance",
    "DType",
    "Definition",
    "Evaluation",
    "FirstWrong",
    "Flag",
    "GateResult",
    "KoptSection",
    "MarginSource",
    "Model",
    "OutputError",
    "PairedBlock",
    "Phase",
    "Profile",
    "ProfiledKernel",
    "Reason",
    "RowOutcome",
    "SecondaryRatios",
    "Solution",
    "SolutionRef",
    "SourceFile",
    "StrictBound",
    "SweepResult",
    "TensorShape",
    "TensorSpec",
    "TierResult",
    "Timer",
    "Timing",
    "Validation",
    "Verdict",
    "Workload",
    "WorkloadComparison",
    "WorkloadResult",
]
