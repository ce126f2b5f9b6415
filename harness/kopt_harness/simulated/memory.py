"""Device memory: a caching allocator that hands out freed blocks as they are."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["Memory", "OutOfMemoryError"]

_GRANULE_BYTES = 512


class OutOfMemoryError(RuntimeError):
    """The device has no block of this size."""


class Memory:
    """Blocks go back to the cache when their tensor dies; their contents stay."""

    def __init__(self, total_bytes: int = 1 << 30) -> None:
        self.total_bytes = total_bytes
        self._used = 0
        self._lost = 0
        self._free: dict[int, list[Any]] = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor of a cached block where one fits: the last one freed, uncleared.

        Raises:
            OutOfMemoryError: there is none, and no room for another.
        """
        import torch  # noqa: PLC0415  only processes that run solutions load it

        numel = 1
        for extent in shape:
            numel *= extent
        nbytes = max(1, -(-numel * dtype.itemsize // _GRANULE_BYTES)) * _GRANULE_BYTES
        cached = self._free.get(nbytes)
        if cached:
            block = cached.pop()
        else:
            if nbytes > self.free_bytes():
                raise OutOfMemoryError(f"{nbytes} bytes, {self.free_bytes()} are free")
            block = torch.zeros(nbytes, dtype=torch.uint8)
            self._used += nbytes
        tensor = block.view(dtype)[:numel].view(shape)
        weakref.finalize(tensor, self._give_back, block)
        return tensor

    def poison_free(self, value: int = 0xFF) -> None:
        """Fills what is cached and free: nothing of an earlier call is left in it."""
        for blocks in self._free.values():
            for block in blocks:
                block.fill_(value)

    def empty_cache(self) -> None:
        """Gives cached blocks back to the device."""
        self._used -= sum(size * len(blocks) for size, blocks in self._free.items())
        self._free.clear()

    def lose(self, nbytes: int) -> None:
        """Memory that a process which has ended still holds."""
        self._lost += nbytes

    def free_bytes(self) -> int:
        """As the driver counts it: cached blocks are in use."""
        return max(0, self.total_bytes - self._used - self._lost)

    def _give_back(self, block: Any) -> None:
        self._free.setdefault(block.numel(), []).append(block)
