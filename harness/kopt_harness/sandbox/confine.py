"""Runs a program that may use the network and write in its own folders, and nothing else.

``python -P -m kopt_harness.sandbox.confine SPEC_FD STATUS_FD PARENT_PID PROGRAM [ARGUMENT ...]``

For programs that are not candidates: they need a network and files that outlive them, so no
namespace is made. What holds is Landlock, inherited by all that the program starts: reading is
limited to the system, the interpreter and what is named, writing to the folders that are named;
processes outside cannot be traced, and with a new kernel not be signalled. Where the kernel has
no Landlock the program runs all the same, and the status says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _landlock
from ._enter import die_with_parent
from ._identity import refuse_new_privileges
from .paths import DEVICES, readable_paths
from .policy import Policy

__all__ = ["Confinement", "command", "read_status"]

_TERMINAL = ("/dev/tty", "/dev/ptmx", "/dev/pts")
"""Programs ask for one although they run without."""
_MOST_BYTES = 1 << 20


class Confinement(NamedTuple):
    """What a program may use; paths are absolute."""

    writable: tuple[str, ...]
    """Folders to do everything in; the first is its working directory."""
    readable: tuple[str, ...] = ()
    """To read and run beside the system and the interpreter, even below ``protected``."""
    search: tuple[str, ...] = ()
    """From variables as PATH: readable as far as they are not protected."""
    protected: tuple[str, ...] = ()
    """Never granted by a wider path that contains them."""

    def to_file(self) -> int:
        """Descriptor of an anonymous file with it; the caller closes it."""
        fd = os.memfd_create("kopt-confinement", os.MFD_CLOEXEC)
        os.write(fd, json.dumps(self._asdict()).encode())
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


def command(spec_fd: int, status_fd: int, argv: Sequence[str]) -> list[str]:
    """Runs a program within a confinement.

    Args:
        spec_fd: Descriptor of ``Confinement.to_file``.
        status_fd: Descriptor of an anonymous file for what was granted.
        argv: Program, as an absolute path, and its arguments.
    """
    module = "kopt_harness.sandbox.confine"
    fds = [str(fd) for fd in (spec_fd, status_fd, os.getpid())]
    return [sys.executable, "-P", "-m", module, *fds, *argv]


def read_status(fd: int) -> dict[str, Any]:
    """What was granted; empty where the program was not reached."""
    try:
        found = json.loads(os.pread(fd, _MOST_BYTES, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def main() -> None:
    """See the module's docstring."""
    spec_fd, status_fd, parent_pid = (int(word) for word in sys.argv[1:4])
    fields: dict[str, Any] = json.loads(os.pread(spec_fd, _MOST_BYTES, 0))
    spec = Confinement(**{name: tuple(value) for name, value in fields.items()})
    die_with_parent(parent_pid)
    os.write(status_fd, json.dumps(_confine(spec)).encode())
    for fd in (spec_fd, status_fd):
        os.close(fd)
    os.chdir(spec.writable[0])
    argv = sys.argv[4:]
    os.execve(argv[0], argv, _environment(os.environ))


def _confine(spec: Confinement) -> dict[str, Any]:
    """What was granted, and why not where it was not."""
    policy = Policy(
        home=spec.writable[0],
        readable=spec.readable,
        search=spec.search,
        protected=spec.protected,
    )
    try:
        refuse_new_privileges()
        granted = _landlock.restrict(
            readable=readable_paths(policy),
            writable=spec.writable,
            devices=(*DEVICES, *_TERMINAL),
            tcp=True,
        )
    except OSError as error:
        return {"landlock": False, "reason": error.strerror or str(error)}
    return {"landlock": True, **granted}


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what only this module's interpreter needed."""
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    main()
