"""Landlock: the same allow-list once more, held by the kernel for this process and its children.

It needs no privilege and no namespace. Alone it also keeps a process from tracing or reading
the memory of any process outside of its own sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _linux

__all__ = ["restrict"]

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Accesses to files that an interface version knows; a version between has those before it."""
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_TCP_ABI, _SCOPE_ABI = 4, 6
_TCP = 3
_SCOPES = 3
"""Abstract Unix sockets, and signals."""


def restrict(
    readable: Iterable[str],
    writable: Iterable[str],
    devices: Iterable[str],
    *,
    listable: Iterable[str] = (),
    name_threads: bool = False,
    tcp: bool = False,
) -> dict[str, Any]:
    """Applies it to this process, which has no other thread.

    Args:
        readable: Folders and files to read and run.
        writable: Folders to do everything in.
        devices: Device files, or folders of them.
        listable: Folders whose names may be seen, and those of all below.
        name_threads: Whether files below /proc may be written and truncated, as far as their
            permissions go. The CUDA driver names its threads that way, and does not start
            (error 304 of cuInit) where it cannot.
        tcp: Whether connections are left alone.

    Returns:
        ``landlock_abi``, and whether TCP, abstract sockets and signals are refused.

    Raises:
        OSError: The kernel has no Landlock, or does not grant it.
    """
    abi = _linux.landlock_abi()
    if abi is None:
        raise OSError("this kernel has no Landlock")
    everything = _ALL_BY_ABI[max(known for known in _ALL_BY_ABI if known <= abi)]
    network = _TCP if abi >= _TCP_ABI and not tcp else 0
    scopes = _SCOPES if abi >= _SCOPE_ABI else 0
    of_proc = _READ_FILE | _READ_DIR | ((_WRITE_FILE | _TRUNCATE) if name_threads else 0)
    ruleset = _linux.landlock_create(everything, network, scopes, abi)
    try:
        for paths, access in ((readable, _READ), (writable, everything), (devices, _DEVICE)):
            for path in paths:
                _grant(ruleset, path, access & everything)
        _grant(ruleset, "/proc", of_proc & everything)
        for path in ("/dev", *listable):
            _grant(ruleset, path, _READ_DIR)
        _linux.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)
    return {
        "landlock_abi": abi,
        "landlock_refuses_tcp": bool(network),
        "landlock_refuses_signals": bool(scopes),
    }


def _grant(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        folder = os.path.isdir(f"/proc/self/fd/{fd}")  # noqa: PTH112
        _linux.landlock_add_path(ruleset, fd, access if folder else access & _OF_A_FILE)
    finally:
        os.close(fd)
