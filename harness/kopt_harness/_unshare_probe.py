"""Which Linux namespaces a process may make here: ``python -P -m kopt_harness._unshare_probe``.

The exit code is a bit mask over ``NAMESPACES``; a process of its own, because what it makes it
also enters.
"""

from __future__ import annotations

import sys

from .sandbox import CLONE, unshare

NAMESPACES = tuple(CLONE)
"""By name, in the order of the bits."""


def main() -> int:
    """Try each; bit ``i`` is set if namespace ``i`` was granted."""
    # A user namespace would grant the others: it is tried last and reported on its own.
    order = sorted(CLONE.items(), key=lambda item: item[0] == "user")
    granted = {name for name, flag in order if _granted(flag)}
    return sum(1 << bit for bit, name in enumerate(NAMESPACES) if name in granted)


def _granted(flag: int) -> bool:
    try:
        unshare(flag)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
