"""Which parts of the file system a sandboxed process sees.

An allow-list: the system's programs and libraries, the interpreter with its packages, and
what the policy names. A folder on it that contains a protected one stands for its other
children.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from .policy import Policy

__all__ = ["DEVICES", "gpu_devices", "inside", "interpreter_paths", "readable_paths"]

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/etc",
    "/opt",
    "/nix",
    "/sys",
    "/run/nvidia*",  # sockets of the driver's daemons, and no other daemon's
    "/var/run/nvidia*",
    "/run/opengl-driver",  # where NixOS has the driver's libraries
    "/run/current-system",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_DEVICES = ("/dev/nvidia*", "/dev/dxg")
_MAX_DEPTH = 32


def gpu_devices() -> list[str]:
    """Device files and folders of the GPU driver."""
    return [path for pattern in _GPU_DEVICES for path in _matching(pattern)]


def readable_paths(policy: Policy) -> list[str]:
    """Paths to grant for reading and running, parents before children.

    A path that is reached through symbolic links is given as it is written; what it leads to
    is given too.
    """
    protected = [os.path.realpath(path) for path in policy.protected]
    wide = [path for pattern in _SYSTEM for path in _matching(pattern)]
    soft = [*wide, *interpreter_paths(), *policy.search]
    chosen: dict[str, None] = {}
    for path in soft:
        if os.path.isabs(path) and os.path.exists(path):  # noqa: PTH110, PTH117
            for kept in _without(path, protected, depth=0):
                chosen[kept] = None
    for path in policy.readable:
        if os.path.exists(path):  # noqa: PTH110
            below = [p for p in protected if p != os.path.realpath(path)]
            below = [p for p in below if inside(p, os.path.realpath(path))]
            for kept in _without(path, below, depth=0):
                chosen[kept] = None
    return _outermost(chosen)


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or below it, as they are written."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _matching(pattern: str) -> list[str]:
    """What there is; an asterisk only at the end (``glob`` is slow to import)."""
    if not pattern.endswith("*"):
        return [pattern] if os.path.exists(pattern) else []  # noqa: PTH110
    folder, _, start = pattern[:-1].rpartition("/")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
    return [f"{folder}/{name}" for name in names if name.startswith(start)]


def interpreter_paths() -> list[str]:
    """Where this interpreter and its packages are; what is not there is left out."""
    program = os.path.dirname(os.path.realpath(sys.executable))  # noqa: PTH120
    found = [sys.prefix, sys.base_prefix, program, *sys.path]
    return [path for path in found if os.path.isabs(path) and os.path.exists(path)]  # noqa: PTH110, PTH117


def _without(path: str, protected: Sequence[str], *, depth: int) -> Iterator[str]:
    """The path, or those of its descendants that together are it but for what is protected."""
    real = os.path.realpath(path)
    if any(inside(real, one) for one in protected) or depth > _MAX_DEPTH:
        return
    if not any(inside(one, real) for one in protected):
        yield path
        return
    try:
        names = sorted(os.listdir(real))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        yield from _without(os.path.join(real, name), protected, depth=depth + 1)  # noqa: PTH118


def _outermost(paths: Iterable[str]) -> list[str]:
    """Without those that another one contains; links keep both ends."""
    kept: dict[str, str] = {}
    for path in sorted({os.path.normpath(path) for path in paths}):
        real = os.path.realpath(path)
        if not any(inside(path, one) and inside(real, its_real) for one, its_real in kept.items()):
            kept[path] = real
    return list(kept)
