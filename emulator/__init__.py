"""CUDA kernels of solutions on a CPU, without a GPU or its toolkit.

For whoever writes a kernel: the device code itself runs, thread by thread, and what hardware
forbids ends the run. It says nothing of time. ``README.md`` has what is emulated and what is not;
the driver of a solution is ``kernels/<definition>/probes/emulator/emulate.py``.
"""

from .building import CACHE, Solution, build
from .driving import (
    addresses,
    chosen_tunables,
    command_line,
    draw_names,
    load_beside,
    load_library,
    within,
)

__all__ = [
    "CACHE",
    "Solution",
    "addresses",
    "build",
    "chosen_tunables",
    "command_line",
    "draw_names",
    "load_beside",
    "load_library",
    "within",
]
