"""One file per kind of device: memory that judge and candidate share, and its fences."""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import NotFoundError

from .protocol import Device

__all__ = ["Device", "device_kinds", "open_device"]


def device_kinds() -> tuple[str, ...]:
    """Kinds that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name != "protocol"))


def open_device(kind: str, *, index: int = 0) -> Device:
    """The device of a worker process.

    Raises:
        NotFoundError: no file here is called ``kind``.
    """
    if kind not in device_kinds():
        raise NotFoundError(f"no device kind {kind!r}", hint=f"one of {', '.join(device_kinds())}")
    device: Device = importlib.import_module(f"{__name__}.{kind}").create(index)
    return device
