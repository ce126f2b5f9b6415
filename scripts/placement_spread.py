"""How much a GPU kernel's time hangs on where its code and its data lie, within one process.

What: a CUDA solution of ``gdn_decode`` is loaded several times, each copy at another address, and
is given several sets of buffers. Medians are printed of one copy on one set, labelled as if they
were several (``null``: what calls scatter by), of all copies on one set, of one copy on all sets,
and of both. Where ``modules`` or ``data`` spread more than ``null``, placement is in a process's
times for as long as it lives.
When: beside ``process_spread.py``, on a machine with a GPU, to see what processes differ by.
How: kopt build DIR --target h200, then
     python scripts/placement_spread.py BUILT.so [--copies 8] [--calls 150] [--batches 1 16 64]
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tvm_ffi
from cupti import cupti

FLUSH_BYTES = 120 << 20
"""Twice the L2 of an H200, and some more."""


class Buffers(NamedTuple):
    """Arguments of one call, and what lies before them."""

    inputs: list[torch.Tensor]
    output: torch.Tensor
    new_state: torch.Tensor
    padding: torch.Tensor


class Clock:
    """Spans of calls out of CUPTI's records, in nanoseconds, with a cold L2."""

    def __init__(self) -> None:
        self._records: list[tuple[str, int, int]] = []
        self._flush = torch.zeros(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._take)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)

    def _take(self, activities: Sequence[Any]) -> None:
        for each in activities:
            if each.kind == cupti.ActivityKind.CONCURRENT_KERNEL:
                self._records.append((each.name, each.start, each.end))

    def span_ns(self, call: Callable[[], None]) -> int:
        """First start to last end of the kernels of a call."""
        self._flush.zero_()
        torch.cuda.synchronize()
        cupti.activity_flush_all(1)
        self._records.clear()
        call()
        torch.cuda.synchronize()
        cupti.activity_flush_all(1)
        return max(end for _, _, end in self._records) - min(s for _, s, _ in self._records)


def buffers(batch: int) -> Buffers:
    """Random inputs of a batch, after padding of a random size."""
    padding = torch.empty(random.randrange(1, 64) << 20, dtype=torch.uint8, device="cuda")

    def draw(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(dtype)

    single = torch.float32
    inputs = [
        draw(batch, 1, 4, 128),
        draw(batch, 1, 4, 128),
        draw(batch, 1, 8, 128),
        draw(batch, 8, 128, 128, dtype=single),
        draw(8, dtype=single).abs(),
        draw(batch, 1, 8),
        draw(8, dtype=single),
        draw(batch, 1, 8),
    ]
    output = torch.empty(batch, 1, 8, 128, dtype=torch.bfloat16, device="cuda")
    new_state = torch.empty(batch, 8, 128, 128, device="cuda")
    return Buffers(inputs, output, new_state, padding)


def measure(clock: Clock, cases: Sequence[tuple[Any, Buffers]], calls: int) -> list[float]:
    """Median span of each case in nanoseconds; the cases take turns in random order."""
    spans: list[list[int]] = [[] for _ in cases]
    for number in range(calls + 1):
        for place in random.sample(range(len(cases)), len(cases)):
            module, data = cases[place]
            ns = clock.span_ns(
                lambda m=module, d=data: m.run(*d.inputs, 0.088, d.output, d.new_state)
            )
            if number:  # the first one loads the module
                spans[place].append(ns)
    return [statistics.median(each) for each in spans]


def main() -> None:
    """Prints four rows for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"copy{n}.so" for n in range(arguments.copies)]
        modules = [tvm_ffi.load_module(str(shutil.copy(arguments.library, p))) for p in paths]
    clock = Clock()
    for batch in arguments.batches:
        sets = [buffers(batch) for _ in modules]
        rows = {
            "null": [(modules[0], sets[0]) for _ in modules],
            "modules": [(module, sets[0]) for module in modules],
            "data": [(modules[0], data) for data in sets],
            "both": list(zip(modules, sets, strict=True)),
        }
        for name, cases in rows.items():
            found = measure(clock, cases, arguments.calls)
            spread = max(found) / min(found) - 1
            times = " ".join(f"{ns / 1e3:7.3f}" for ns in found)
            print(f"B = {batch:2d} {name:8s} {times} us  spread {spread:.1%}", flush=True)


if __name__ == "__main__":
    main()
