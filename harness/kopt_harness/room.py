"""How much memory workers may take together: an estimate is asked for before work starts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil

from .layout import Arena
from .schema import Definition, Workload

__all__ = ["Room", "free_bytes", "pair_bytes", "work_bytes"]

WORKER_BYTES = 1 << 30
"""Resident memory of a judge and a candidate beside their tensors, estimated."""
_SHARE = 0.8
"""Of the memory that is free, for all workers."""
_EXPECTED_ITEM_BYTES = 4
_TEMPORARIES = 1.5
"""What computing and comparing take beside the sets themselves, estimated."""


def free_bytes() -> int:
    """What workers may take now."""
    return int(psutil.virtual_memory().available * _SHARE)


def pair_bytes(definition: Definition, workloads: Sequence[Workload]) -> int:
    """What a judge and a candidate hold all the time: the arena, and inputs that all sets share."""
    arena = Arena.for_workloads(definition, workloads).nbytes
    static = max((_static_bytes(definition, each) for each in workloads), default=0)
    return WORKER_BYTES + arena + 2 * static


def work_bytes(definition: Definition, workload: Workload, sets: int) -> int:
    """What a judge takes for a workload beside that.

    Args:
        definition: Of the workload.
        workload: What is checked.
        sets: Input sets that it draws.
    """
    static = definition.kopt.static_inputs
    inputs = definition.input_shapes(workload.axes)
    outputs = definition.output_shapes(workload.axes)
    own = sum(shape.nbytes for shape in inputs if shape.name not in static)
    one = own + sum(shape.numel * _EXPECTED_ITEM_BYTES for shape in outputs)
    return int(sets * one * _TEMPORARIES)


def _static_bytes(definition: Definition, workload: Workload) -> int:
    shapes = definition.input_shapes(workload.axes)
    return sum(s.nbytes for s in shapes if s.name in definition.kopt.static_inputs)


class Room:
    """So many bytes, given out in the order of asking."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._taken = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        """Holds a part for the time of the block; more than there is, if nobody else has any."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(lambda: self._queue[0] is ticket and self._fits(nbytes))
            self._queue.popleft()
            self._taken += nbytes
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._taken -= nbytes
                self._changed.notify_all()

    def _fits(self, nbytes: int) -> bool:
        return self._taken == 0 or self._taken + nbytes <= self._nbytes
