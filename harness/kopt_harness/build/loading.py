"""Loading a built solution; only a candidate worker does this."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_harness.schema import Solution

from ._registry import get_builder

__all__ = ["import_libraries", "load"]

_LIBRARIES = {"cpp": "tvm_ffi", "cuda": "tvm_ffi", "triton": "triton"}
"""Module by language."""


def import_libraries(solution: Solution) -> None:
    """Imports what loading a solution needs of installed packages, and none of its own code.

    So that processes which are opened side by side do it at once: importing takes longer than
    loading. What is not installed is missed, and named, by whoever loads.
    """
    name = _LIBRARIES.get(solution.spec.language)
    if name is not None and solution.spec.binding != "torch":
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def load(build_path: Path, solution: Solution) -> Callable[..., Any]:
    """The entry function of a built folder.

    Whatever the candidate's code raises while it loads passes through.

    Args:
        build_path: ``BuildResult.path``.
        solution: The solution that was built there.
    """
    return get_builder(solution.spec.language).load(build_path, solution)
