"""NVIDIA B200 (Blackwell, 148 SMs, HBM3e). Nothing here was measured by this project."""

from __future__ import annotations

from .cuda import CudaTarget
from .protocol import Figure

_DATASHEET = "NVIDIA B200 datasheet, dense; not measured"

TARGET = CudaTarget(
    name="b200",
    arch="sm_100a",
    description="NVIDIA B200",
    device_pattern=r"\bB200\b",
    compute_capability=(10, 0),
    copy_gbps=Figure(8000.0, "NVIDIA B200 datasheet; not measured", measured=False),
    l2_bytes=Figure(126 * 2**20, "NVIDIA, published size; not measured", measured=False),
    peak_tflops={
        "bfloat16": Figure(2250.0, _DATASHEET, measured=False),
        "float16": Figure(2250.0, _DATASHEET, measured=False),
        "float8_e4m3fn": Figure(4500.0, _DATASHEET, measured=False),
        "float32": Figure(75.0, f"{_DATASHEET}, without tensor cores", measured=False),
    },
)
