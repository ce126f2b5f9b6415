"""What limits a call that kopt has profiled itself, by the rules of ``kopt diagnose``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .diagnose.classify import Signature, classify
from .diagnose.kernels import Figures, group
from .diagnose.record import Launch

__all__ = ["diagnosed", "diagnosis_fields"]


def diagnosed(found: Mapping[str, Any], *, on_device: bool) -> dict[str, Any]:
    """The fields of a ``Profile`` with a diagnosis, where something that ran was seen.

    Args:
        found: Fields without one, or with one that stays.
        on_device: Whether the kernels are those of a GPU; operators of a CPU have no launch.
    """
    kernels = found.get("kernels", ())
    if found.get("diagnosis") is not None or not kernels:
        return dict(found)
    launches = [
        Launch(
            name=kernel["name"],
            duration_us=kernel["total_us"] / max(1, kernel["calls"]),
            count=max(1, kernel["calls"]),
            on_device=on_device,
        )
        for kernel in kernels
    ]
    signature = classify(group([Figures(launch) for launch in launches]), None)
    return {**found, "diagnosis": diagnosis_fields(signature)}


def diagnosis_fields(signature: Signature) -> dict[str, Any]:
    """A signature as the fields of a ``ProfileDiagnosis``."""
    return {
        "bottleneck": signature.bottleneck,
        "limiter": signature.limiter,
        "evidence": [row._asdict() for row in signature.evidence],
        "headroom": signature.headroom,
    }
