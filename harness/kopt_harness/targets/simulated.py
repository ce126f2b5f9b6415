"""A simulated GPU: the logic of judging a GPU, on any machine. Its times mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .protocol import Figure, Presence, Target

DRAM_GBPS = 100.0
L2_BYTES = 4 << 20
_MODEL = "constant of the simulation"
_COPY = Figure(DRAM_GBPS, _MODEL, measured=False)
_CACHE = Figure(L2_BYTES, _MODEL, measured=False)


@dataclass(frozen=True)
class SimulatedTarget:
    """Always present, never the best target, never grounds for a promotion."""

    name: str = "simulated"
    kind: Literal["cpu", "cuda", "simulated"] = "simulated"
    arch: str | None = "sim_1"
    timer: str = "simulated"
    calls_per_slot: int = 2
    rounds: bool = False
    rounds_ahead: int = 1
    description: str = "a simulated GPU without hardware, for tests of the harness"
    caveat: str = "the device is simulated: its times are computed, not measured"
    copy_gbps: Figure | None = _COPY
    launch_us: Figure | None = None
    l2_bytes: Figure | None = _CACHE
    peak_tflops: Mapping[str, Figure] = field(default_factory=dict)

    def each(self) -> tuple[Target, ...]:
        """There is one."""
        return (self,)

    def present(self) -> Presence:
        """It needs no hardware."""
        return Presence(True, "simulated, no hardware", device="simulated GPU")


TARGET = SimulatedTarget()
