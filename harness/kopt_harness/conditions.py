"""State of the device around a block: clocks, temperature, power, throttle reasons, company."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import psutil

from .lease import users

__all__ = [
    "device_memory",
    "disturbance",
    "foreign_processes",
    "gpu_driver",
    "own_processes",
    "read_conditions",
]

CLOCK_DROP = 0.05
"""Share of the SM clock that may be lost from one reading to the next."""
_IDLE = 0x1
_SLOWED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "external power brake",
}
"""NVML's bits for clocks below what was asked for; idling and application clocks are none."""


def read_conditions(uuid: str) -> dict[str, Any]:
    """What NVML says of the GPU now; empty for a CPU or without nvidia-ml-py.

    Clocks in MHz, temperature in degrees Celsius, power in watts, throttle reasons as
    NVML's bit mask, processes by id, each with its bytes (absent where NVML lists none).
    """
    nvml = _nvml() if uuid else None
    if nvml is None:
        return {}
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    found = {
        "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
    with contextlib.suppress(nvml.NVMLError):
        found["processes"] = _listed(nvml, handle)
    return found


def device_memory(uuid: str) -> dict[int, int]:
    """Bytes of the device that NVML says each process has; empty where it does not say."""
    nvml = _nvml() if uuid else None
    if nvml is None:
        return {}
    try:
        return _listed(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    except nvml.NVMLError:
        return {}


def _listed(nvml: Any, handle: Any) -> dict[int, int]:
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return {each.pid: each.usedGpuMemory or 0 for each in listed}


def disturbance(
    before: Mapping[str, Any], after: Mapping[str, Any], *, own: Collection[int] = ()
) -> str:
    """What spoilt the samples between two readings; empty where nothing did.

    Args:
        before: conditions at the start; empty where they cannot be read.
        after: conditions at the end.
        own: process ids of those that measure.
    """
    found = []
    reasons = before.get("throttle_reasons", 0) | after.get("throttle_reasons", 0)
    slowed = sorted({text for bit, text in _SLOWED.items() if reasons & bit})
    if slowed:
        found.append(f"clocks were held back by {', '.join(slowed)}")
    first, last = before.get("sm_mhz"), after.get("sm_mhz")
    # The clock of a device that was idle when it was read says nothing of the calls.
    if first and last and not reasons & _IDLE and last < (1 - CLOCK_DROP) * first:
        found.append(f"the SM clock fell from {first} to {last} MHz")
    readings = [foreign_processes(each.get("processes", ()), own) for each in (before, after)]
    if foreign := max(readings):
        found.append(f"{foreign} other processes were on the device")
    return "; ".join(found)


def own_processes(device: str) -> set[int]:
    """This process and every other kopt that uses a device, with everything below them.

    Those are the workers, parked ones too. Another kopt does not time meanwhile.
    """
    found = set()
    for pid in {os.getpid(), *users(device)}:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found |= {pid, *(child.pid for child in process.children(recursive=True))}
    return found


def foreign_processes(listed: Collection[int], own: Collection[int]) -> int:
    """How many of the processes on a device are not ours.

    In a container the driver may list ids of the host, none of which is ours: then those in
    excess of our number are counted.
    """
    others = len(set(listed) - set(own))
    return others if others < len(listed) or not own else max(0, len(listed) - len(own))


@cache
def _nvml() -> Any:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def gpu_driver() -> str | None:
    """Version of the NVIDIA driver; None where NVML does not say."""
    nvml = _nvml()
    return None if nvml is None else str(nvml.nvmlSystemGetDriverVersion())
