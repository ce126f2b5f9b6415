"""State of the device around a block: clocks, temperature, power, throttle reasons."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

__all__ = ["gpu_driver", "read_conditions"]


def read_conditions(uuid: str) -> dict[str, Any]:
    """What NVML says of the GPU now; empty for a CPU or without nvidia-ml-py.

    Clocks in MHz, temperature in degrees Celsius, power in watts, throttle reasons as
    NVML's bit mask.
    """
    nvml = _nvml() if uuid else None
    if nvml is None:
        return {}
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return {
        "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }


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
