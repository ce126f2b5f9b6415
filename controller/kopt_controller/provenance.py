"""What a run was made with, for its manifest: versions and the hash of what it chose from."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping

import kopt_harness

from .directions import Direction

__all__ = ["versions"]


def versions(directions: Mapping[str, Direction]) -> dict[str, str]:
    """Of kopt, of Python, and of the catalogue of directions.

    What measured (device, driver, toolchain) is noted in the journal, once in each session.
    """
    digest = hashlib.sha256()
    for name, direction in sorted(directions.items()):
        digest.update(f"{name}\0{direction.model_dump_json()}\0".encode())
    return {
        "kopt": kopt_harness.__version__,
        "python": platform.python_version(),
        "directions": digest.hexdigest(),
    }
