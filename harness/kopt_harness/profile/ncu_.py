"""Nsight Compute, which starts a worker of its own: counters of every kernel of one call.

Beside another profiler in one process neither would see anything, so nothing runs in the
process that is timed.
"""

from __future__ import annotations

__all__ = ["EXTERNAL"]

EXTERNAL = {"cuda": "ncu_sections", "simulated": "simulated"}
"""The external profiler for each kind of device."""
