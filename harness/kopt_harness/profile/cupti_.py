"""The activity census of timed calls: every kernel, copy and fill of a call, with its time.

The timer of a GPU keeps it anyway, so that no second subscriber of CUPTI is needed, which would
see nothing beside the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from kopt_harness.errors import ProfileError

__all__ = ["read_calls"]


def read_calls(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Activities by name, the median over calls.

    Args:
        calls: Details of timed calls, as a timer with a census gives them.

    Raises:
        ProfileError: If no call has an activity.
    """
    found: dict[str, list[tuple[float, int]]] = {}
    for call in calls:
        for activity in call["kernels"]:
            entry = (activity["ns"] / 1e3, activity["count"])
            found.setdefault(activity["name"], []).append(entry)
    if not found:
        raise ProfileError(
            "the calls launch nothing on the device", hint="--profiler torch shows operators"
        )
    # An activity that some calls do not have counts as nothing in them.
    kernels: list[dict[str, Any]] = [
        {
            "name": name,
            "calls": round(median([count for _, count in seen] + [0] * (len(calls) - len(seen)))),
            "total_us": median([us for us, _ in seen] + [0.0] * (len(calls) - len(seen))),
        }
        for name, seen in found.items()
    ]
    kernels.sort(key=lambda kernel: -kernel["total_us"])
    total_us = sum(kernel["total_us"] for kernel in kernels)
    for kernel in kernels:
        kernel["share"] = kernel["total_us"] / total_us if total_us else 0.0
    busy_us = median(call.get("busy_ns", 0) for call in calls) / 1e3
    host_us = median(call["host_ns"] for call in calls) / 1e3
    return {
        "total_us": total_us,
        "launches": sum(kernel["calls"] for kernel in kernels),
        "kernels": kernels,
        "notes": [
            f"median of {len(calls)} timed calls",
            f"the device is busy for {busy_us:.2f} us, the call returns after {host_us:.2f} us",
        ],
    }
