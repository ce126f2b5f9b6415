"""Profiles that other people took, read as an expert reads them: what limits, and why."""

from __future__ import annotations

from .classify import Bottleneck, Evidence, Signature, classify_kernel
from .kernels import Ignored, Kernel
from .report import Diagnosis, Regime, diagnose

__all__ = [
    "Bottleneck",
    "Diagnosis",
    "Evidence",
    "Ignored",
    "Kernel",
    "Regime",
    "Signature",
    "classify_kernel",
    "diagnose",
]
