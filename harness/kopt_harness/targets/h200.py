"""NVIDIA H200 (Hopper, 132 SMs, HBM3e)."""

from __future__ import annotations

from .cuda import CudaTarget
from .protocol import Figure

_DATASHEET = "NVIDIA H200 datasheet, dense"
_MEASURED = "copy of 4 GiB, bytes read plus written, one H200, driver 580, 2026-11-29"

TARGET = CudaTarget(
    name="h200",
    arch="sm_90a",
    description="NVIDIA H200",
    device_pattern=r"\bH200\b",
    compute_capability=(9, 0),
    copy_gbps=Figure(4240.0, _MEASURED, measured=True),
    launch_us=Figure(0.56, "an empty kernel, one H200, driver 580, 2026-11-29", measured=True),
    l2_bytes=Figure(62_914_560, "device property, driver 580, 2026-11-29", measured=True),
    peak_tflops={
        "bfloat16": Figure(989.0, _DATASHEET, measured=False),
        "float16": Figure(989.0, _DATASHEET, measured=False),
        "float8_e4m3fn": Figure(1979.0, _DATASHEET, measured=False),
        "float32": Figure(67.0, f"{_DATASHEET}, without tensor cores", measured=False),
    },
)
