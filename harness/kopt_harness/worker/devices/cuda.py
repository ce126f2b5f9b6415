"""Device memory shared by CUDA IPC: one exported allocation for each tensor.

An IPC handle exports a whole allocation, so each slot is a ``cudaMalloc`` of its own,
rounded up to 2 MiB. Measured to work between processes on an H200 with driver 580.

One block more is what caches are flushed with. All solutions write to the same one: its place in
memory decides what a cold call has to wait for, and two places are not alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kopt_harness.errors import InfraError
from kopt_harness.layout import RED_ZONE_BYTES, SHIFT_STEP_BYTES, Arena, Slot
from kopt_harness.worker.fingerprint import checksums, totals

__all__ = ["CudaDevice", "create"]

_GRANULE_BYTES = 2 << 20
_FLUSH = "flush buffer"
"""No tensor can be called so."""
_L2_BYTES = 64 << 20
"""At least so large is the cache that a flush block is made for."""


class _Exposed:
    """Hands a raw device pointer to PyTorch without a copy."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": (nbytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }


class CudaDevice:
    """One GPU of this process; the primary context is PyTorch's."""

    def __init__(self, index: int) -> None:
        import torch
        from cuda.bindings import runtime

        self.torch_device = f"cuda:{index}"
        self._runtime = runtime
        torch.cuda.set_device(index)
        torch.cuda.init()
        torch.zeros(1, device=self.torch_device)
        self._slots: dict[str, Slot] = {}
        self._bytes: dict[str, Any] = {}
        self.flush_buffer: Any = None

    def create(self, arena: Arena, fd: int) -> dict[str, Any]:
        """Allocates one block a slot, and that for flushes, and exports each."""
        import torch

        del fd
        handles = {}
        for slot in arena.slots:
            nbytes = -(-slot.nbytes // _GRANULE_BYTES) * _GRANULE_BYTES
            pointer = int(self._ok(self._runtime.cudaMalloc(nbytes)))
            handle = self._ok(self._runtime.cudaIpcGetMemHandle(pointer))
            handles[slot.name] = bytes(handle.reserved).hex()
            self._keep(slot, pointer)
        properties = torch.cuda.get_device_properties(self.torch_device)
        nbytes = 2 * max(int(properties.L2_cache_size), _L2_BYTES)
        pointer = int(self._ok(self._runtime.cudaMalloc(nbytes)))
        handle = self._ok(self._runtime.cudaIpcGetMemHandle(pointer))
        return {
            "handles": handles,
            "flush": {"handle": bytes(handle.reserved).hex(), "nbytes": nbytes},
        }

    def attach(self, arena: Arena, fd: int, export: dict[str, Any]) -> None:
        """Opens the judge's blocks."""
        del fd
        for slot in arena.slots:
            self._keep(slot, self._opened(export["handles"][slot.name]))
        flush = export["flush"]
        self.flush_buffer = self._exposed(self._opened(flush["handle"]), flush["nbytes"])

    def slot_bytes(self, name: str) -> Any:
        """The whole slot, red zones included."""
        return self._bytes[name]

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, shift: int) -> Any:
        """A view of the block."""
        import torch

        type_ = getattr(torch, dtype)
        numel = 1
        for extent in shape:
            numel *= extent
        if numel == 0:
            return torch.empty(shape, dtype=type_, device=self.torch_device)
        start = RED_ZONE_BYTES + shift * SHIFT_STEP_BYTES
        flat = self._bytes[name][start : start + numel * type_.itemsize]
        return flat.view(type_).view(shape)

    def synchronize(self) -> None:
        """Waits for the device work of this process."""
        import torch

        torch.cuda.synchronize()

    def fingerprint(self, samples: Sequence[Any]) -> Any:
        """A few small kernels on the current stream."""
        return checksums(samples)

    def read_fingerprint(self, handle: Any) -> list[int]:
        """The sums."""
        return totals(handle)

    def evict(self, nbytes: int, processors: Sequence[int]) -> None:
        """The timer does it, in the stream of the call."""

    def free_bytes(self) -> int | None:
        """As the driver counts it over all processes, and what PyTorch keeps in this one."""
        import torch

        free, _ = self._runtime_pair(self._runtime.cudaMemGetInfo())
        return free + int(torch.cuda.memory_reserved())

    def canary(self) -> bool:
        """Integer sums that no rounding can change."""
        import torch

        count = 1 << 16
        values = torch.arange(count, dtype=torch.int64, device=self.torch_device)
        total = int((values * 3 + 1).sum())
        return total == 3 * count * (count - 1) // 2 + count

    def name(self) -> str:
        """Name that the driver gives."""
        import torch

        return str(torch.cuda.get_device_name())

    def _keep(self, slot: Slot, pointer: int) -> None:
        self._slots[slot.name] = slot
        self._bytes[slot.name] = self._exposed(pointer, slot.nbytes)

    def _opened(self, handle_hex: str) -> int:
        handle = self._runtime.cudaIpcMemHandle_t()
        handle.reserved = bytes.fromhex(handle_hex)
        flags = self._runtime.cudaIpcMemLazyEnablePeerAccess
        return int(self._ok(self._runtime.cudaIpcOpenMemHandle(handle, flags)))

    def _exposed(self, pointer: int, nbytes: int) -> Any:
        """(nbytes,) uint8 at a device pointer."""
        import torch

        return torch.as_tensor(_Exposed(pointer, nbytes), device=self.torch_device)

    def _runtime_pair(self, answer: Any) -> tuple[int, int]:
        status, first, second = answer
        if int(status) != 0:
            raise InfraError(f"CUDA call failed: {status!r}", hint="see nvidia-smi")
        return int(first), int(second)

    def _ok(self, answer: Any) -> Any:
        status, *values = answer
        if int(status) != 0:
            raise InfraError(f"CUDA call failed: {status!r}", hint="see nvidia-smi")
        return values[0] if values else None


def create(index: int) -> CudaDevice:
    """GPU ``index`` among those visible to this process."""
    return CudaDevice(index)
