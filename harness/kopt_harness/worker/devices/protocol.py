"""What a worker needs of a device."""

from __future__ import annotations

from typing import Any, Protocol

from kopt_harness.layout import Arena


class Device(Protocol):
    """Memory shared between judge and candidates, on one kind of device."""

    torch_device: str
    """Name for PyTorch."""

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

    def name(self) -> str:
        """Model of the device."""
        ...
