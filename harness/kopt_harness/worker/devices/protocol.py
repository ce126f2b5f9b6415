"""What a worker needs of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kopt_harness.layout import Arena


class Device(Protocol):
    """Memory shared between judge and candidates, on one kind of device."""

    torch_device: str
    """Name for PyTorch."""
    flush_buffer: Any
    """(bytes,) uint8 that all candidates' flushes write to, once attached; None where the judge
    flushes."""

    def create(self, arena: Arena, fd: int) -> dict[str, Any]:
        """The judge's side: allocates the arena; returns what ``attach`` needs, as JSON."""
        ...

    def attach(self, arena: Arena, fd: int, export: dict[str, Any]) -> None:
        """The candidate's side: maps an arena that the judge has created."""
        ...

    def slot_bytes(self, name: str) -> Any:
        """The whole slot as a one-dimensional uint8 tensor."""
        ...

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, shift: int) -> Any:
        """A contiguous tensor in its slot, ``shift`` steps from the first place."""
        ...

    def synchronize(self) -> None:
        """Waits for everything that this process has enqueued."""
        ...

    def fingerprint(self, samples: Sequence[Any]) -> Any:
        """Enqueues a checksum of each one-dimensional integer tensor on the current stream.

        Returns:
            A handle for ``read_fingerprint``; nothing is waited for.
        """
        ...

    def read_fingerprint(self, handle: Any) -> list[int]:
        """The checksums, after ``synchronize``."""
        ...

    def evict(self, nbytes: int, processors: Sequence[int]) -> None:
        """Writes so much that caches which these processors use hold nothing from before.

        Nothing where the timer does it, in the stream of the call.
        """
        ...

    def free_bytes(self) -> int | None:
        """Free memory of the device, whoever uses the rest, and this process's own reserve.

        None where the memory is the host's.
        """
        ...

    def canary(self) -> bool:
        """Whether a small computation on the device still gives the right answer."""
        ...

    def name(self) -> str:
        """Model of the device."""
        ...
