"""Attempts of candidate code to get help from outside: the network, an installer.

The sandbox has no network, so they fail; a solution that tries is not scored all the same. An
audit hook cannot be taken away again, but sees Python only: native code is stopped, unseen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Outreach"]

_NAMES = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_ADDRESSES = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_PROGRAMS = {"subprocess.Popen", "os.exec", "os.posix_spawn"}
_INSTALLERS = frozenset(
    {"apt", "apt-get", "conda", "curl", "easy_install", "git", "mamba", "pip", "pip3", "uv", "wget"}
)
_MAX_KEPT = 8


class Outreach:
    """Made before candidate code is loaded; remembers what it tries from then on."""

    def __init__(self) -> None:
        self._found: list[str] = []
        sys.addaudithook(self._see)

    def found(self) -> list[str]:
        """What was tried so far, the first few."""
        return list(self._found)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        tried = ""
        if event in _NAMES:
            tried = f"looked up {arguments[0]!r}"
        elif event in _ADDRESSES:
            address = arguments[1]
            # A local socket has a path for an address.
            tried = f"connected to {address[:2]!r}" if isinstance(address, tuple) else ""
        elif event in _PROGRAMS or event == "os.system":
            words = list(_words(arguments))
            installer = next((w for w in words if os.path.basename(w) in _INSTALLERS), "")  # noqa: PTH119
            tried = f"ran {installer}" if installer else ""
        if tried and len(self._found) < _MAX_KEPT and tried not in self._found:
            self._found.append(tried)


def _words(arguments: tuple[Any, ...]) -> Iterator[str]:
    """Program and arguments of a command, in whatever form it was given."""
    for argument in arguments[:2]:
        parts = argument if isinstance(argument, (list, tuple)) else [argument]
        for part in parts:
            if isinstance(part, (str, bytes, os.PathLike)):
                yield from os.fsdecode(part).split()
