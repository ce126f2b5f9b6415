"""Loading a built solution; only a candidate worker does this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_harness.schema import Solution

from ._registry import get_builder

__all__ = ["load"]


def load(build_path: Path, solution: Solution) -> Callable[..., Any]:
    """The entry function of a built folder.

    Whatever the candidate's code raises while it loads passes through.

    Args:
        build_path: ``BuildResult.path``.
        solution: The solution that was built there.
    """
    return get_builder(solution.spec.language).load(build_path, solution)
