"""The simulated device: shared memory of the CPU, work that is pending until it is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kopt_harness.simulated import Gpu, gpu, launch
from kopt_harness.worker.fingerprint import checksums

from .cpu import CpuDevice

__all__ = ["SimulatedDevice", "create"]


class SimulatedDevice(CpuDevice):
    """Each process has a context of its own on it."""

    def __init__(self, device: Gpu) -> None:
        super().__init__()
        self._gpu = device

    def synchronize(self) -> None:
        """Lets everything that is pending happen; the host sleeps as long."""
        self._gpu.synchronize()

    def fingerprint(self, samples: Sequence[Any]) -> Any:
        """One small kernel in stream order: it sees what earlier work of the stream has left."""
        sums: list[Any] = []
        launch(lambda: sums.extend(checksums(samples)), name="kopt_fingerprint", ns=500)
        return sums

    def evict(self, nbytes: int, processors: Sequence[int]) -> None:
        """The timer does it, in the stream of the call."""

    def free_bytes(self) -> int | None:
        """As its driver counts it."""
        return self._gpu.memory.free_bytes()

    def canary(self) -> bool:
        """A sum that has to come out right; false after a fault."""
        from kopt_harness.simulated import DeviceFaultError

        found: list[int] = []
        try:
            launch(lambda: found.append(sum(range(100))), name="kopt_canary", ns=100)
            self._gpu.synchronize()
        except DeviceFaultError:
            return False
        return found == [4950]

    def name(self) -> str:
        """It must never be taken for hardware."""
        return "simulated GPU"


def create(index: int) -> SimulatedDevice:
    """The only one of this process."""
    del index
    return SimulatedDevice(gpu())
