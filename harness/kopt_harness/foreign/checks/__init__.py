"""Kinds of doubt, one module each.

To add one, add a module here that defines ``check(case)``, an iterator over findings; a new
code goes to ``finding.FindingCode`` and docs/audit.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from ..finding import Case, Finding

__all__ = ["Check", "list_checks"]

Check = Callable[[Case], Iterator[Finding]]


@cache
def list_checks() -> tuple[Check, ...]:
    """All checks by name of their module, found by listing this folder."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return tuple(importlib.import_module(f"{__name__}.{name}").check for name in names)
