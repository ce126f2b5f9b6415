"""A simulated GPU: what code for the target ``simulated`` launches its work with.

There is one device in each process. Work that is launched stays pending until something
waits for it, runs in the order of a device clock that is computed, not measured, and leaves
activity records. Tensors are those of the CPU; a kernel is a Python function on them::

    from kopt_harness.simulated import launch

    def run(x, y):
        launch(lambda: y.copy_(x + 1), name="add_one", ns=5_000, reads=[x], writes=[y])

Nothing here says anything about the speed of real hardware.
"""

from __future__ import annotations

from .api import (
    Event,
    compile_kernel,
    current_stream,
    empty,
    gpu,
    host_function,
    launch,
    memcpy,
    memset,
    new_stream,
    persist,
    synchronize,
    use_stream,
)
from .engine import DeviceFaultError, Gpu, LaunchError, Stream
from .graph import Graph

__all__ = [
    "DeviceFaultError",
    "Event",
    "Gpu",
    "Graph",
    "LaunchError",
    "Stream",
    "compile_kernel",
    "current_stream",
    "empty",
    "gpu",
    "host_function",
    "launch",
    "memcpy",
    "memset",
    "new_stream",
    "persist",
    "synchronize",
    "use_stream",
]
