"""The orchestrator's side: what to put into a policy, and the command that enters it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._identity import set_dumpable

__all__ = [
    "WORKER_PREFIX",
    "arguments",
    "command",
    "protected_paths",
    "search_paths",
    "shield",
]

WORKER_PREFIX = "kopt-worker-"
"""Folders of workers in the temporary folder begin with it."""
_LISTS = ("PATH", "LD_LIBRARY_PATH")
_FOLDERS = ("CUDA_HOME", "CUDA_PATH", "PYTHONUSERBASE")
_PROGRAMS = ("CC", "CXX")


def command(policy_fd: int, module: str, *others: object) -> list[str]:
    """Runs a module in the sandbox of a policy (``Policy.to_file``)."""
    words = arguments(policy_fd, os.getpid(), module, *others)
    return [sys.executable, "-P", "-m", *words]


def arguments(policy_fd: int, parent: object, module: str, *others: object) -> list[str]:
    """The module that enters the sandbox of a policy, and what it is told.

    Args:
        policy_fd: Descriptor of ``Policy.to_file``.
        parent: Process id of the process that starts it.
        module: What runs in the sandbox.
        others: Its arguments.
    """
    return ["kopt_harness.sandbox", *map(str, (policy_fd, parent, module, *others))]


def search_paths(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Folders that a worker's environment leads to; never the user's home folder itself."""
    named = [part for name in _LISTS for part in environment.get(name, "").split(os.pathsep)]
    named += [environment.get(name, "") for name in _FOLDERS]
    named += [os.path.dirname(environment.get(name, "")) for name in _PROGRAMS]  # noqa: PTH120
    home = Path.home()
    wide = {str(path) for path in (home, *home.parents)}
    return tuple(path for path in named if os.path.isabs(path) and path.rstrip("/") not in wide)  # noqa: PTH117


def protected_paths(roots: Sequence[Path] = ()) -> tuple[str, ...]:
    """What no wider path may grant: definitions and evidence, and the folders of other workers.

    Args:
        roots: Folders with a ``kernels/``, beside the checkout that kopt is installed from.
    """
    checkout = Path(__file__).resolve().parents[3]
    found = [
        str(root / name)
        for root in (checkout, *roots)
        for name in ("kernels", "artifacts", ".git")
        if (root / name).exists()
    ]
    workers = Path(tempfile.gettempdir()).glob(f"{WORKER_PREFIX}*")
    return (*found, *map(str, workers))


def shield() -> None:
    """Keeps processes of the same user from reading this one's memory and from tracing it."""
    set_dumpable(dumpable=False)
