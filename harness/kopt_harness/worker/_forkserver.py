"""The process that has loaded what workers need, and forks them.

It runs no candidate code and knows no secrets: seeds and inputs are drawn after a fork. What
it forks is in the state of a process just started: a session, descriptors, an environment, a
working folder and generators of its own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import runpy
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.sandbox.launch import shield
from kopt_harness.sandbox.processes import rename

__all__ = ["MAX_FDS", "MAX_REQUEST_BYTES", "PARENT"]

MAX_FDS = 32
MAX_REQUEST_BYTES = 1 << 18
PARENT = "parent"
"""Stands for the process id of the parent in the arguments of a worker."""


class _Birth(NamedTuple):
    """What a forked process is to become."""

    argv: Sequence[str]
    """Module and its arguments."""
    environment: Mapping[str, str]
    folder: str
    numbers: Sequence[int]
    """Which number each of ``fds`` is to have; the last is the log."""
    fds: Sequence[int]


def main() -> None:
    """Arguments: the control socket, the modules to load, and padding for a process's title."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2].split(","):
        importlib.import_module(module)
        # A worker runs it as its main module, which a loaded copy must not stand beside.
        del sys.modules[module]
    shield()
    gc.collect()
    gc.freeze()  # else a collection in a forked process copies every page
    birth = _serve(control)
    if birth is not None:
        _become(birth)


def _serve(control: socket.socket) -> _Birth | None:
    """Forks until the orchestrator is gone; in a forked process, what that is to become."""
    while True:
        data, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, MAX_FDS)
        if not data:
            return None
        request: dict[str, Any] = json.loads(data)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            answer = {"returncode": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                control.close()
                return _Birth(**request, fds=fds)
            answer = {"pid": pid}
        for fd in fds:
            os.close(fd)
        control.send(json.dumps(answer).encode())


def _become(birth: _Birth) -> None:
    os.setsid()
    _place(birth.fds, birth.numbers)
    os.environ.clear()
    os.environ.update(birth.environment)
    os.chdir(birth.folder)
    tempfile.tempdir = None
    _reseed()
    rename(f"kopt worker {birth.folder}")
    sys.argv = [str(os.getppid()) if word == PARENT else word for word in birth.argv]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives descriptors the numbers by which the arguments name them; closes all others."""
    import fcntl

    above = max(*fds, *numbers) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds]
    os.closerange(3, above)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)  # inheritable
    log = numbers[-1]
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.closerange(min(high), max(high) + 1)


def _reseed() -> None:
    """Global generators that were seeded when their modules were loaded."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


if __name__ == "__main__":
    main()
