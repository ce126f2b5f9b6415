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
    launches: int | None = None
    """Kernels or operators per run."""
    notes: tuple[str, ...] = ()
