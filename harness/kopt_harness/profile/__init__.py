"""One file per profiler.

One that defines ``profile(call, device)`` runs in the candidate process, on one call.
One that defines ``read_build(cubins)`` reads what was compiled, and needs neither a process nor
a GPU. One that defines ``read_calls(details)`` reads what the timer knows of timed calls. One
that defines ``EXTERNAL`` names the external profiler, which starts a worker of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kopt_harness.errors import NotFoundError, UsageError

__all__ = [
    "external_of",
    "is_external",
    "profiler_names",
    "read_build",
    "read_calls",
    "reads_builds",
    "reads_calls",
    "run_profiler",
]


def profiler_names() -> tuple[str, ...]:
    """Profilers that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removesuffix("_") for name in names if not name.startswith("_")))


def reads_builds(name: str) -> bool:
    """Whether a profiler reads what was compiled, instead of watching a call.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    return hasattr(_module(name), "read_build")


def is_external(name: str) -> bool:
    """Whether a profiler starts a worker of its own.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    return hasattr(_module(name), "EXTERNAL")


def external_of(name: str, kind: str) -> str | None:
    """Name of the external profiler for a kind of device; None where there is none.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    found: dict[str, str] = getattr(_module(name), "EXTERNAL", {})
    return found.get(kind)


def reads_calls(name: str) -> bool:
    """Whether a profiler reads what the timer knows of timed calls.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    return hasattr(_module(name), "read_calls")


def read_calls(name: str, details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What timed calls were made of; returns the JSON fields of a ``Profile``.

    Raises:
        NotFoundError: no file here is called ``name``.
        ProfileError: the calls launch nothing.
    """
    found: dict[str, Any] = _module(name).read_calls(details)
    return found


def run_profiler(name: str, call: Any, device: Any) -> dict[str, Any]:
    """Runs ``call`` under a profiler; returns the JSON fields of a ``Profile``.

    Raises:
        NotFoundError: no file here is called ``name``.
        UsageError: the profiler reads builds, or starts a worker itself.
    """
    module = _module(name)
    if not hasattr(module, "profile"):
        raise UsageError(
            f"the profiler {name!r} watches no call of another process",
            hint="it reads builds, or starts a worker of its own",
        )
    found: dict[str, Any] = module.profile(call, device)
    return found


def read_build(name: str, cubins: Sequence[Path]) -> dict[str, Any]:
    """What a profiler reads in cubins; returns the JSON fields of a ``Profile``.

    Raises:
        NotFoundError: no file here is called ``name``.
        UsageError: the profiler watches calls.
        UnavailableError: a tool that it needs is not here.
    """
    module = _module(name)
    if not hasattr(module, "read_build"):
        raise UsageError(f"the profiler {name!r} reads no builds", hint="it watches a call")
    found: dict[str, Any] = module.read_build(cubins)
    return found


def _module(name: str) -> ModuleType:
    if name not in profiler_names():
        raise NotFoundError(f"no profiler {name!r}", hint=f"one of {', '.join(profiler_names())}")
    return importlib.import_module(f"{__name__}.{name}_")
