"""Walking large tensors in pieces that fit a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_CPU_ELEMENTS = 1 << 20
"""4 MiB of float32, which bounds the temporaries. Smaller pieces fit a core's cache and are slower
with two threads, which then have too little of each (7.3 s of a sweep at 1 MiB, 5.6 s at 4 MiB)."""

_DEVICE_ELEMENTS = 1 << 25
"""On a GPU launches cost more than traffic; this only bounds the temporaries."""


class Block(NamedTuple):
    """Some rows of two tensors of the same shape."""

    start: int
    """First row."""
    expected: Any
    """(rows, width), a view."""
    actual: Any
    """(rows, width), a view."""


def as_rows(tensor: Any) -> Any:
    """A (rows, width) view: the last axis is a row; a scalar tensor is one row of one."""
    width = tensor.shape[-1] if tensor.dim() else 1
    return tensor.reshape(-1, width)


def blocks(expected: Any, actual: Any) -> Iterator[Block]:
    """Pieces of two (rows, width) tensors, in order, covering every row once."""
    rows, width = expected.shape
    step = rows_at_once(expected, width)
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        yield Block(start, expected[start:stop], actual[start:stop])


def rows_at_once(tensor: Any, width: int) -> int:
    """How many rows of a width make a piece on the tensor's device."""
    limit = _CPU_ELEMENTS if tensor.device.type == "cpu" else _DEVICE_ELEMENTS
    return max(1, limit // max(1, width))
