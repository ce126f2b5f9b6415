"""Which Linux namespaces a process may make here: ``python -P -m kopt_harness._unshare_probe``.

The exit code is a bit mask over ``NAMESPACES``; a process of its own, because what it makes it
also enters.
"""

from __future__ import annotations

import ctypes
import sys

NAMESPACES = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
    "mount": 0x00020000,
    "ipc": 0x08000000,
}
"""Flags of ``unshare(2)``, by name."""


def main() -> int:
    """Try each; bit ``i`` is set if namespace ``i`` was granted."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A user namespace would grant the others: it is tried last and reported on its own.
    order = [*list(NAMESPACES.items())[1:], ("user", NAMESPACES["user"])]
    granted = {name for name, flag in order if libc.unshare(flag) == 0}
    return sum(1 << bit for bit, name in enumerate(NAMESPACES) if name in granted)


if __name__ == "__main__":
    sys.exit(main())
