"""Cold L2 on a GPU: no set-aside, persisting lines reset, then at least twice the L2 written.

Without its set-aside no access policy of a stream or kernel keeps lines: what a solution has
asked for is undone before every timed call, and it cannot profit from asking again in a call.

A read flush must use allocating loads: on an H200 a read with no-allocate loads evicts
nothing, and lines loaded with evict_last survive the written flush unless the persisting
L2 is reset before it (measured 2026-11-29).
"""

from __future__ import annotations

from typing import Any

from kopt_harness.errors import InfraError, UnavailableError

__all__ = ["L2Flush"]


class L2Flush:
    """Flushes the L2 of the current device.

    Args:
        cache: state that a call begins in.
        torch_device: the GPU.
        l2_bytes: size of the cache, where it is known to be more than the driver says.
        buffer: (bytes,) uint8 to write to; None allocates one.
    """

    def __init__(
        self, cache: str, torch_device: str, l2_bytes: int | None, buffer: Any = None
    ) -> None:
        if torch_device == "cpu":
            raise UnavailableError("this timer needs a GPU", hint="use the cpu timer")
        import torch
        from cuda.bindings import runtime

        if cache not in ("cold", "cold-clean", "warm"):
            raise UnavailableError(f"no cache state {cache!r}", hint="cold, cold-clean or warm")
        # Functions are bound here, before candidate code can replace them.
        self._get_limit = runtime.cudaDeviceGetLimit
        self._set_limit = runtime.cudaDeviceSetLimit
        self._set_aside = runtime.cudaLimit.cudaLimitPersistingL2CacheSize
        self._reset = runtime.cudaCtxResetPersistingL2Cache
        self._synchronize = torch.cuda.synchronize
        properties = torch.cuda.get_device_properties(torch_device)
        size = max(int(properties.L2_cache_size), int(l2_bytes or 0))
        self.nbytes = 0 if cache == "warm" else 2 * size
        if buffer is None:
            buffer = torch.empty(self.nbytes, dtype=torch.uint8, device=torch_device)
        if buffer.numel() < self.nbytes:
            raise InfraError(f"a flush writes {self.nbytes} bytes, its buffer has {buffer.numel()}")
        self._write = buffer[: self.nbytes].zero_
        clean_bytes = 4 * self.nbytes if cache == "cold-clean" else 0
        clean = torch.zeros(clean_bytes // 4, dtype=torch.float32, device=torch_device)
        self._read = clean.sum if clean_bytes else None

    def __call__(self) -> None:
        """Leaves dirty lines of the buffer (``cold``) or clean ones (``cold-clean``)."""
        if self.nbytes:
            status, nbytes = self._get_limit(self._set_aside)
            # To set it asks the driver, which takes longer than to read it.
            (removed,) = self._set_limit(self._set_aside, 0) if nbytes else (status,)
            for each in (status, removed, *self._reset()):
                if int(each) != 0:
                    raise InfraError(f"the persisting L2 could not be reset: {each!r}")
            self._write()
        if self._read is not None:
            self._read()
        self._synchronize()
