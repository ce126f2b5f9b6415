"""Tries to get out of a sandbox, for ``kopt doctor``.

``python -P -m kopt_harness.sandbox POLICY_FD PARENT_PID kopt_harness.sandbox.probe PARENT_PID
PROTECTED`` prints one JSON document: what was granted, and which barriers hold.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable

from . import in_force

__all__ = ["BARRIERS", "main"]

BARRIERS = ("files", "system", "memory", "signals", "network")
"""What is probed: a protected folder, the system's folders, another process's memory, signals to
it, and whatever is outside of this machine."""

_PTRACE_SEIZE = 0x4206
_SOMEWHERE = ("192.0.2.1", 9)
"""An address that nobody has (RFC 5737); only the way to it is asked for."""


def main() -> None:
    """See the module's docstring for the arguments."""
    parent, protected = int(sys.argv[1]), sys.argv[2]
    libc = ctypes.CDLL(None, use_errno=True)
    attempts: dict[str, Callable[[], object]] = {
        "files": lambda: os.listdir(protected),  # noqa: PTH208
        "system": lambda: os.open("/usr", os.O_TMPFILE | os.O_WRONLY),
        "memory": lambda: _checked(libc.ptrace(_PTRACE_SEIZE, parent, None, None)),
        "signals": lambda: os.kill(parent, 0),
        "network": _send,
    }
    holds = {name: not _succeeds(attempts[name]) for name in BARRIERS}
    print(json.dumps({"record": in_force() or {}, "holds": holds}))  # noqa: T201


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(_SOMEWHERE)


if __name__ == "__main__":
    main()
