"""What the simulated device counts itself, beside the activity records of its driver.

Durations go to whoever has started the process, as they are: what the process holds in memory
of them is of no use to anybody.
"""

from __future__ import annotations

import json
import os

from kopt_harness.environ import simulated_counters

from .engine import Gpu

__all__ = ["Counters", "attach"]


class Counters:
    """Writes a line a kernel while it is on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._on = False

    def start(self) -> None:
        """From now on."""
        self._on = True

    def stop(self) -> None:
        """No longer."""
        self._on = False

    def add(self, name: str, blocks: int, stream: int, ns: float) -> None:
        """A kernel that has run."""
        if self._on:
            line = json.dumps({"name": name, "blocks": blocks, "stream": stream, "ns": ns})
            os.write(self._fd, line.encode() + b"\n")


def attach(device: Gpu) -> Counters:
    """Lets a device count for the profiler that has started this process.

    Raises:
        RuntimeError: none has.
    """
    fd = simulated_counters()
    if fd is None:
        raise RuntimeError("no profiler of the simulated device has started this process")
    device.counters = Counters(fd)
    return device.counters
