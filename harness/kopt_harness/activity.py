"""Who uses a processor while nobody should: threads and processes as the kernel counts them.

Read from ``/proc`` by the orchestrator, so that a thread counts that no Python knows of, and
a child that has left its session. Where ``/proc`` cannot be read nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["CpuUse", "busy_ns", "cpu_use"]

_PROC = Path("/proc")

CpuUse = dict[tuple[int, int], int]
"""Processor time in nanoseconds by process and thread id."""


def cpu_use(processes: Iterable[int]) -> CpuUse:
    """What every thread of some processes has used so far."""
    found: CpuUse = {}
    for process in processes:
        try:
            threads = list((_PROC / str(process) / "task").iterdir())
        except OSError:
            continue
        for thread in threads:
            try:
                text = (thread / "schedstat").read_bytes()
            except OSError:
                continue
            found[process, int(thread.name)] = int(text.split()[0])
    return found


def busy_ns(before: CpuUse, after: CpuUse) -> int:
    """What was used in between, by threads old and new."""
    return sum(max(0, ns - before.get(who, 0)) for who, ns in after.items())
