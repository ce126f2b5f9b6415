"""Device activity of the simulated GPU, measured as the ``cupti`` timer does on a real one."""

from __future__ import annotations

import secrets
from typing import Any

from kopt_harness.bench.timers import Sample
from kopt_harness.errors import UnavailableError
from kopt_harness.simulated import Gpu, gpu
from kopt_harness.simulated.engine import Work
from kopt_harness.targets.simulated import DRAM_GBPS

from .census import (
    Bracket,
    Flushes,
    Markers,
    MissingMarkerError,
    require_sound,
    take_census,
    without_marker,
)

__all__ = ["SimulatedTimer", "create"]

_MARKER = "kopt_marker"
_MAX_BLOCKS = 1 << 20


class SimulatedTimer:
    """Owns the activity records of the device; functions are bound before candidate code."""

    def __init__(self, device: Gpu, *, flush_bytes: int) -> None:
        self.flush_bytes = flush_bytes
        self._gpu = device
        self._take, self._dropped = device.trace.take, device.trace.dropped
        self._enable = device.trace.enable
        self._synchronize, self._submit = device.synchronize, device.submit
        self._timestamp = device.timestamp
        sizes = secrets.SystemRandom().sample(range(1, _MAX_BLOCKS), 3)
        self._markers = Markers(*(Bracket(_MARKER, size) for size in sizes))
        self._flushes = Flushes()

    def flush(self) -> None:
        """Persisting lines reset, then the L2 overwritten; records from then on."""
        self._enable()
        self._take()
        if self.flush_bytes:
            cache = self._gpu.l2
            cache.persisting_limit = 0
            cache.reset_persisting()
            self._submit(
                Work(
                    kind="memset",
                    name="kopt_flush",
                    run=lambda: cache.write_scratch(self.flush_bytes),
                    ns=self.flush_bytes / DRAM_GBPS,
                    size=self.flush_bytes,
                )
            )
        self._synchronize()
        self._flushes.saw(self._take())

    def measure(self, call: Any) -> Sample:
        """Span of the device activity of ``call.run()``.

        Raises:
            InfraError: records are missing that candidate code has not taken.
        """
        self._dropped()
        compiled = self._gpu.compilations
        self._mark(self._markers.begin)
        self._synchronize()
        opening = without_marker(self._take(), self._markers.begin)
        self._mark(self._markers.begin)
        self._synchronize()
        fence_ns = self._timestamp()
        call.run()
        host_ns = self._timestamp() - fence_ns
        self._mark(self._markers.returned)
        call.seal()
        self._mark(self._markers.end)
        self._synchronize()
        records = [*opening, *self._take()]
        require_sound(records, dropped=self._dropped())
        try:
            census = take_census(records, self._markers, fence_ns=fence_ns, host_ns=host_ns)
        except MissingMarkerError as error:
            # Recording was on when the call began, and nothing was dropped.
            return Sample(0, {"launches": 0, "host_ns": host_ns, "tampered": error.message})
        details = census.details(self._flushes.beside())
        if self._gpu.compilations != compiled:
            details["compiled"] = self._gpu.compilations - compiled
        return Sample(census.span_ns, details)

    def _mark(self, marker: Bracket) -> None:
        self._submit(Work(kind="kernel", name=marker.name, ns=100, size=marker.size))


def create(*, cache: str, torch_device: str, l2_bytes: int | None) -> SimulatedTimer:
    """A timer for ``cold`` or ``warm``."""
    if torch_device != "cpu":
        raise UnavailableError("this timer is for the simulated device", hint="use cupti")
    if cache not in ("cold", "warm"):
        raise UnavailableError(f"no cache state {cache!r} is simulated", hint="cold or warm")
    device = gpu()
    size = max(device.l2.nbytes, l2_bytes or 0)
    return SimulatedTimer(device, flush_bytes=2 * size if cache == "cold" else 0)
