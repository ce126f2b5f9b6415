"""Formats of profilers' files, one module each.

To add a format, add a module here that defines ``READER`` (see ``protocol.Reader``).
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from .protocol import ProfileFile, Reader

__all__ = ["ProfileFile", "Reader", "list_readers"]


@cache
def list_readers() -> tuple[Reader, ...]:
    """All readers by name, found by listing this folder."""
    names = sorted(
        m.name
        for m in pkgutil.iter_modules(__path__)
        if m.name != "protocol" and not m.name.startswith("_")
    )
    return tuple(importlib.import_module(f"{__name__}.{name}").READER for name in names)
