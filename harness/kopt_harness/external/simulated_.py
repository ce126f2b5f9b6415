"""The external profiler of the simulated device: ``kopt_harness.simulated.profiler``.

As with ncu, the device itself counts, and the program that started the application prints what
it has counted.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .protocol import Bracket

__all__ = ["PROFILER", "SimulatedProfiler"]

_MAX_BLOCKS = 1 << 20


@dataclass(frozen=True)
class SimulatedProfiler:
    """Always there."""

    name: str = "simulated"
    device_kind: str = "simulated"
    spread_ns: float = 0.0

    def missing(self) -> str:
        """Nothing."""
        return ""

    def version(self) -> str:
        """It has none."""
        return ""

    def folders(self) -> tuple[str, ...]:
        """None."""
        return ()

    def command(self, application: Sequence[str]) -> list[str]:
        """The module and the application."""
        return [sys.executable, "-P", "-m", "kopt_harness.simulated.profiler", *application]

    def bracket(self) -> Bracket:
        """The device's counters, switched on and off."""
        from kopt_harness.simulated import counters, gpu, launch  # noqa: PLC0415  workers only

        counting = counters.attach(gpu())
        size = secrets.randbelow(_MAX_BLOCKS) + 1
        return Bracket(
            counting.start,
            lambda: launch(lambda: None, name="kopt_marker", ns=100, blocks=size),
            counting.stop,
        )


PROFILER = SimulatedProfiler()
