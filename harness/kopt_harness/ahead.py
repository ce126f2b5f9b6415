"""Builds side by side, while nothing is timed: a compiler keeps one core busy, a machine has more.

What is built ahead is in the build cache when somebody asks for it. What cannot be built is
asked for again by whoever needs it, and gets its verdict or its error there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import build
from kopt_harness.schema import Solution
from kopt_harness.setting import Setting

__all__ = ["build_ahead"]

_MOST = 4
"""A compiler may take gigabytes."""


def build_ahead(setting: Setting, solutions: Sequence[Solution]) -> None:
    """Builds solutions into the cache of a setting, several at a time.

    Args:
        setting: target, options and build cache.
        solutions: what will be needed; one that is built already costs nothing.
    """
    if not solutions:
        return

    def attempt(solution: Solution) -> None:
        with contextlib.suppress(UnavailableError):
            build(setting, solution)

    count = min(len(solutions), len(os.sched_getaffinity(0)), _MOST)
    pool = ThreadPoolExecutor(count)
    try:
        for done in [pool.submit(attempt, solution) for solution in solutions]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # whoever interrupts it waits for no further one
