"""One file per external profiler: a program that starts a candidate and times its kernels.

The timer of a candidate lives in the candidate's process, so that its number is a claim. These
programs count with other means and report over a pipe of their own. Nothing here loads the
GPU stack but ``External.bracket``, which only workers call.
"""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import NotFoundError

from .protocol import Bracket, External
from .report import Launch, UnreadableError, attribute, read_report

__all__ = [
    "Bracket",
    "External",
    "Launch",
    "UnreadableError",
    "attribute",
    "external_for",
    "external_names",
    "get_external",
    "read_report",
]

_HELPERS = frozenset({"protocol", "report"})


def external_names() -> tuple[str, ...]:
    """External profilers that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removesuffix("_") for name in names if name not in _HELPERS))


def get_external(name: str) -> External:
    """The profiler of this name.

    Raises:
        NotFoundError: no file here is called ``name``.
    """
    if name not in external_names():
        hint = f"one of {', '.join(external_names())}"
        raise NotFoundError(f"no external profiler {name!r}", hint=hint)
    found: External = importlib.import_module(f"{__name__}.{name}_").PROFILER
    return found


def external_for(kind: str) -> External | None:
    """The profiler of a kind of device; None where the orchestrator's own clock is enough.

    Args:
        kind: of a target.
    """
    every = (get_external(name) for name in external_names())
    return next((each for each in every if each.device_kind == kind), None)
