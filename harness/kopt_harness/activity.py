"""Who uses a processor while nobody should: processes as the kernel counts them.

Read by the orchestrator from the clock of each process, which counts threads that no Python
knows of, and those that have ended. Children that have ended are counted by their parents, in
ticks. Where the kernel does not say, nothing is found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress

from kopt_harness.sandbox.processes import stat_fields

__all__ = ["CpuUse", "busy_ns", "cpu_use", "last_processors"]

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_OF_ENDED_CHILDREN = slice(13, 15)
"""Fields of /proc/PID/stat behind the name: user and system time of children waited for."""
_PROCESSOR = 36
"""The field with the processor on which a thread ran last."""

CpuUse = dict[int, int]
"""Processor time in nanoseconds by process id; that of ended children under its negative."""


def cpu_use(processes: Iterable[int]) -> CpuUse:
    """What some processes have used so far."""
    found: CpuUse = {}
    for pid in processes:
        with suppress(OSError):
            # The clock of a process by its number, as clock_getcpuclockid(3) makes it.
            found[pid] = time.clock_gettime_ns((~pid << 3) | 2)
        with suppress(OSError, ValueError):
            found[-pid] = _TICK_NS * sum(map(int, stat_fields(pid)[_OF_ENDED_CHILDREN]))
    return found


def last_processors(processes: Iterable[int]) -> list[int]:
    """Processors on which threads of some processes ran last, in order."""
    found = set()
    for pid in processes:
        for thread in _threads(pid):
            with suppress(OSError, ValueError, IndexError):
                found.add(int(stat_fields(f"{pid}/task/{thread}")[_PROCESSOR]))
    return sorted(found)


def _threads(pid: int) -> list[str]:
    """Ids of its threads; none of one that has ended."""
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  many times a call
    except OSError:
        return []


def busy_ns(before: CpuUse, after: CpuUse) -> int:
    """What was used in between, by processes old and new."""
    return sum(max(0, ns - before.get(who, 0)) for who, ns in after.items())
