"""What surrounds the device: clocks, heat, and other processes on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["BASE_MHZ", "Machine"]

BASE_MHZ = 1000
_THERMAL = 0x20
"""NVML's bit for a slowdown by temperature."""


@dataclass
class Machine:
    """A change of it acts on what is launched afterwards."""

    sm_mhz: int = BASE_MHZ
    temperature_c: int = 40
    throttle_reasons: int = 0
    processes: dict[int, int] = field(default_factory=dict)
    """Bytes of device memory by process id, of all that use the device."""

    def overheat(self, sm_mhz: int, temperature_c: int = 90) -> None:
        """Lowers the clock, as the driver does above a limit."""
        self.sm_mhz, self.temperature_c = sm_mhz, temperature_c
        self.throttle_reasons |= _THERMAL

    def cool(self) -> None:
        """Full clock again."""
        self.sm_mhz, self.temperature_c = BASE_MHZ, 40
        self.throttle_reasons &= ~_THERMAL

    @property
    def slowdown(self) -> float:
        """How much longer a kernel takes: lower clocks, and a share for every co-tenant."""
        return BASE_MHZ / self.sm_mhz * max(1, len(self.processes))

    def conditions(self) -> dict[str, Any]:
        """The fields that ``kopt_harness.conditions`` reads of a real device."""
        return {
            "sm_mhz": self.sm_mhz,
            "memory_mhz": BASE_MHZ,
            "temperature_c": self.temperature_c,
            "power_w": 100.0,
            "throttle_reasons": self.throttle_reasons,
        }
