"""torch.profiler: operators on a CPU, kernels on a GPU, with their own time.

A C++ solution that calls no PyTorch operator has no operators to show; its whole call is
then reported as one entry named after what it is.
"""

from __future__ import annotations

import time
from typing import Any

__all__ = ["profile"]

REPEATS = 3


def profile(call: Any, device: Any) -> dict[str, Any]:
    """Kernels or operators of one run, averaged over ``REPEATS`` runs after a warm-up."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    on_gpu = device.torch_device != "cpu"
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    call.run()
    device.synchronize()
    with torch.profiler.profile(activities=activities, acc_events=True) as session:
        start_ns = time.perf_counter_ns()
        for _ in range(REPEATS):
            call.run()
        device.synchronize()
        wall_us = (time.perf_counter_ns() - start_ns) / 1e3 / REPEATS
    kernels = _kernels(session.key_averages(), on_gpu=on_gpu)
    notes = [f"mean of {REPEATS} runs with warm caches, under the profiler"]
    if not on_gpu:
        outside_us = wall_us - sum(k["total_us"] for k in kernels)
        if outside_us > 0:
            kernels.append(
                {"name": "(outside PyTorch operators)", "calls": 1, "total_us": outside_us}
            )
    kernels.sort(key=lambda k: -k["total_us"])
    total_us = sum(k["total_us"] for k in kernels)
    for kernel in kernels:
        kernel["share"] = kernel["total_us"] / total_us if total_us else 0.0
    launches = sum(k["calls"] for k in kernels)
    return {"total_us": total_us, "launches": launches, "kernels": kernels, "notes": notes}


def _kernels(averages: Any, *, on_gpu: bool) -> list[dict[str, Any]]:
    found = []
    for event in averages:
        is_kernel = "CUDA" in str(getattr(event, "device_type", ""))
        if on_gpu != is_kernel:
            continue
        total_us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if total_us > 0:
            calls = max(1, round(event.count / REPEATS))
            found.append({"name": event.key, "calls": calls, "total_us": total_us / REPEATS})
    return found
