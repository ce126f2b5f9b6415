"""The processor of this machine: what CI and machines without a GPU use."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from .protocol import Figure, Presence, Target

_SYS_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class CpuTarget:
    """Always present. Bandwidth and peak of an arbitrary processor are unknown."""

    name: str = "cpu"
    kind: Literal["cpu", "cuda", "simulated"] = "cpu"
    arch: str | None = None
    timer: str = "cpu"
    calls_per_slot: int = 1
    """Flushing and comparing take tens of milliseconds a call."""
    rounds: bool = False
    rounds_ahead: int = 1
    description: str = "the processor of this machine"
    caveat: str = ""
    copy_gbps: Figure | None = None
    launch_us: Figure | None = None
    peak_tflops: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def l2_bytes(self) -> Figure | None:
        """The last-level cache, as the kernel reports it; None where it does not."""
        size = _last_level_cache_bytes()
        if size is None:
            return None
        return Figure(size, "reported by the operating system", measured=False)

    def each(self) -> tuple[Target, ...]:
        """The machine is one device."""
        return (self,)

    def present(self) -> Presence:
        """Always there."""
        return Presence(True, "the processor of this machine", device=_processor_name())


@cache
def _processor_name() -> str:
    model = ""
    if _CPUINFO.is_file():
        lines = _CPUINFO.read_text(errors="replace").splitlines()
        found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        model = next(found, "")
    return f"{model or platform.machine()} ({os.cpu_count() or 1} logical processors)"


@cache
def _last_level_cache_bytes() -> int | None:
    sizes = []
    for folder in _SYS_CACHE.glob("index*"):
        if not (folder / "size").is_file():
            continue
        text = (folder / "size").read_text().strip()
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdigit():
            sizes.append(int(number) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(unit, 1))
    return max(sizes, default=None)


TARGET = CpuTarget()
