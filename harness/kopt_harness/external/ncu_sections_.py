"""Nsight Compute with whole sections of counters: for profiles, never for a confirmation.

Sections take many passes, so that each kernel runs many times and its memory is restored
between them; times are those of one pass. Caches are flushed before each, as for a cold call.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ncu_ import Ncu

__all__ = ["PROFILER", "NcuSections"]

_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
    "SourceCounters",
)


@dataclass(frozen=True)
class NcuSections(Ncu):
    """See the module's docstring; no kind of device is confirmed by it."""

    name: str = "ncu_sections"
    device_kind: str = "none"

    def _collected(self) -> tuple[str, ...]:
        words = [word for section in _SECTIONS for word in ("--section", section)]
        return ("--cache-control", "all", "--page", "details", *words)


PROFILER = NcuSections()
