"""Shared memory of the CPU: one anonymous file, mapped by judge and candidates."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
from collections.abc import Sequence
from typing import Any

from kopt_harness.layout import RED_ZONE_BYTES, SHIFT_STEP_BYTES, Arena, Slot
from kopt_harness.worker.fingerprint import checksums, totals

__all__ = ["CpuDevice", "create"]

_PRIVATE_BYTES = 8 << 20
"""Twice what any processor of today has in caches of its own."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class CpuDevice:
    """Tensors are views of the mapping; each is a storage of its own."""

    torch_device = "cpu"
    flush_buffer: Any = None

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._scrap = mmap.mmap(-1, mmap.PAGESIZE)
        self._turn = 0
        self._slots: dict[str, Slot] = {}

    def create(self, arena: Arena, fd: int) -> dict[str, Any]:
        """Sizes the file; a larger arena than before keeps nothing of the old contents."""
        os.ftruncate(fd, arena.nbytes)
        # A candidate that cut it short would end the judge by a bus error; one that sealed it
        # against writing would keep out whoever comes next.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        self._open(arena, fd)
        return {"nbytes": arena.nbytes}

    def attach(self, arena: Arena, fd: int, export: dict[str, Any]) -> None:
        """Maps what the judge has sized."""
        del export
        self._open(arena, fd)

    def slot_bytes(self, name: str) -> Any:
        """The whole slot, red zones included."""
        import torch

        slot = self._slots[name]
        return torch.frombuffer(self._map, dtype=torch.uint8, count=slot.nbytes, offset=slot.offset)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, shift: int) -> Any:
        """A view of the mapping."""
        import torch

        type_ = getattr(torch, dtype)
        numel = 1
        for extent in shape:
            numel *= extent
        if numel == 0:
            return torch.empty(shape, dtype=type_)
        offset = self._slots[name].offset + RED_ZONE_BYTES + shift * SHIFT_STEP_BYTES
        flat = torch.frombuffer(self._map, dtype=type_, count=numel, offset=offset)
        return flat.view(shape)

    def synchronize(self) -> None:
        """Nothing is asynchronous here."""

    def fingerprint(self, samples: Sequence[Any]) -> Any:
        """Summed at once."""
        return checksums(samples)

    def read_fingerprint(self, handle: Any) -> list[int]:
        """The sums."""
        return totals(handle)

    def evict(self, nbytes: int, processors: Sequence[int]) -> None:
        """Writes a buffer piece by piece, on one processor after the other."""
        if not nbytes:
            return
        allowed = os.sched_getaffinity(0)
        places = sorted(allowed.intersection(processors)) or sorted(allowed)[:1]
        share = max(_PRIVATE_BYTES, nbytes // len(places))
        if len(self._scrap) < max(nbytes, share):
            self._scrap = mmap.mmap(-1, max(nbytes, share))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._scrap))
        self._turn = (self._turn + 1) % 256
        try:
            for number, place in enumerate(places):
                os.sched_setaffinity(0, {place})
                offset = number * share if (number + 1) * share <= len(self._scrap) else 0
                ctypes.memset(start + offset, self._turn, share)
        finally:
            os.sched_setaffinity(0, allowed)

    def free_bytes(self) -> int | None:
        """It is the host's."""
        return None

    def canary(self) -> bool:
        """A processor that runs this is well."""
        return True

    def name(self) -> str:
        """Architecture of the processor; the orchestrator records its model."""
        return platform.machine()

    def _open(self, arena: Arena, fd: int) -> None:
        self._map = mmap.mmap(fd, arena.nbytes)
        self._slots = arena.by_name()


def create(index: int) -> CpuDevice:
    """The only CPU there is."""
    del index
    return CpuDevice()
