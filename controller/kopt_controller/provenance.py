"""What a run was made with, for its manifest: versions and the hash of what it chose from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

import kopt_harness

from .directions import Direction

__all__ = ["versions"]


PACKAGES = ("apache-tvm-ffi", "numpy", "torch", "triton")
"""That take part in a measurement or a choice; what is not installed is left out."""


def versions(directions: Mapping[str, Direction], definition: Path) -> dict[str, str]:
    """Of kopt, Python and packages, and hashes of all that a round chooses from and is judged by.

    What measured (device, driver, toolchain) is noted in the journal, once in each session.

    Args:
        directions: The catalogue; playbooks are what an agent is told.
        definition: Folder of the definition: reference, inputs, costs, workloads, solutions.
    """
    digest = hashlib.sha256()
    for name, direction in sorted(directions.items()):
        digest.update(f"{name}\0{direction.model_dump_json()}\0".encode())
    return {
        "kopt": kopt_harness.__version__,
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _installed(name))},
        "directions": digest.hexdigest(),
        "definition": _hash(path for path in definition.iterdir() if path.suffix in _DEFINING),
        "solutions": _hash((definition / "solutions").rglob("*")),
    }


_DEFINING = frozenset({".json", ".jsonl", ".py"})


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _hash(paths: Iterable[Path]) -> str:
    """Over names and contents of files; bytecode and hidden files say nothing."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith("."):
            digest.update(f"{path.name}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
