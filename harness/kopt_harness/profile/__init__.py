"""One file per profiler. A profiler runs in the candidate process, on one call."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from kopt_harness.errors import NotFoundError

__all__ = ["profiler_names", "run_profiler"]


def profiler_names() -> tuple[str, ...]:
    """Profilers that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removesuffix("_") for name in names if not name.startswith("_")))


def run_profiler(name: str, call: Any, device: Any) -> dict[str, Any]:
    """Runs ``call`` under a profiler; returns the JSON fields of a ``Profile``.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    if name not in profiler_names():
        raise NotFoundError(f"no profiler {name!r}", hint=f"one of {', '.join(profiler_names())}")
    module = importlib.import_module(f"{__name__}.{name}_")
    found: dict[str, Any] = module.profile(call, device)
    return found
