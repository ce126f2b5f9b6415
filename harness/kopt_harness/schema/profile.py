"""What a profiler found on one workload."""

from __future__ import annotations

from ._base import Model
from .verdict import SolutionRef


class ProfiledKernel(Model):
    """One kernel or operator, over all its calls."""

    name: str
    calls: int
    """Per run of the solution."""
    total_us: float
    """Per run of the solution."""
    share: float
    """Of the time of all kernels, 0 to 1."""
    metrics: dict[str, float] = {}
    """What else the profiler knows, with units in the names."""


class CompiledKernel(Model):
    """One kernel as it was compiled; nothing of it was run."""

    name: str
    arch: str
    """As ``sm_90a``."""
    registers: int | None
    """Per thread; null where the cubin does not say."""
    smem_bytes: int | None
    """Static; dynamic shared memory is an argument of the launch."""
    stack_bytes: int | None
    """Per thread: spills, and arrays that are indexed at run time."""
    spill_instructions: int
    """Loads from and stores to local memory in the code."""
    instructions: int
    """In the code, without padding."""
    mix: dict[str, int]
    """Instructions by class; how often they stand in the code, not how often they run."""
    opcodes: dict[str, int]
    """Instructions by name, most frequent first."""


class ProfileEvidence(Model):
    """A number that a diagnosis rests on, and what it was compared with."""

    metric: str
    value: float
    threshold: float
    source: str
    """Of the threshold."""


class ProfileDiagnosis(Model):
    """What limits a call, by the rules of ``kopt diagnose``."""

    bottleneck: str
    """One of the fixed list of ``kopt_harness.diagnose``; ``unknown`` is an answer."""
    limiter: str | None
    """The resource in words."""
    evidence: tuple[ProfileEvidence, ...]
    headroom: float | None
    """Share of the busiest unit's peak, or of the time, that is not used: 0 to 1."""


class Profile(Model):
    """One solution on one workload under one profiler."""

    profiler: str
    """``null``, ``torch``, ..."""
    solution: SolutionRef
    target: str
    uuid: str
    axes: dict[str, int]
    total_us: float | None
    """Time of all kernels per run; null where the profiler measures none."""
    kernels: tuple[ProfiledKernel, ...] = ()
    """Largest first."""
    compiled: tuple[CompiledKernel, ...] = ()
    """Where the profiler reads what was built."""
    launches: int | None = None
    """Kernels or operators per run."""
    notes: tuple[str, ...] = ()
    diagnosis: ProfileDiagnosis | None = None
    """Null where nothing that ran was seen."""
