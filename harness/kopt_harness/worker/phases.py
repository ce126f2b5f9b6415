"""Where a worker's time goes, by name, in nanoseconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Phases"]


class Phases:
    """Accumulates wall time until it is taken."""

    def __init__(self) -> None:
        self._ns: dict[str, int] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Counts the time of the block under ``name``."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self._ns[name] = self._ns.get(name, 0) + time.perf_counter_ns() - start

    def take(self) -> dict[str, int]:
        """What has been counted since the last call."""
        taken, self._ns = self._ns, {}
        return taken
