"""Workers by fork: PyTorch is loaded once for all judges, and once for all candidates.

Loading it takes seconds, a fork milliseconds, and a round starts dozens of workers. Judges and
candidates come from different processes, so that neither knows the other's address space.

``multiprocessing.forkserver`` starts one server a program, in the program's environment, and
gives its children neither a session nor descriptors by number.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kopt_harness import proc
from kopt_harness.environ import without_private

from ._forkserver import MAX_FDS, MAX_REQUEST_BYTES, PARENT

__all__ = ["PARENT", "ForkServer", "Forked", "close_servers", "fork"]

_TITLE_BYTES = 256
_MAX_SERVERS = 4
"""Of different environments; those without a worker end when there are more."""
_servers: dict[tuple[object, ...], ForkServer] = {}
_lock = threading.Lock()


class _Reply:
    """What is, or will be, answered to a request."""

    def __init__(self) -> None:
        self.value: dict[str, Any] | None = None
        self.lost = False
        """The server has ended."""


class ForkServer:
    """One server process; it ends with this one."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Starts it; it can be asked to fork at once.

        Args:
            modules: What it loads.
            environment: Variables that may matter while modules are loaded.
            log: File in which it says why it could not load them.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._lock = threading.RLock()
        self._waiting: deque[_Reply] = deque()
        self._workers = 0
        words = ("-P", "-m", "kopt_harness.worker._forkserver", theirs.fileno(), ",".join(modules))
        with theirs:
            self._process = proc.start(
                [sys.executable, *map(str, words), "-" * _TITLE_BYTES],
                cwd=Path("/"),
                env=environment,
                pass_fds=(theirs.fileno(),),
                log=log,
            )

    @property
    def idle(self) -> bool:
        """Whether none of its workers is left."""
        return self._workers == 0

    def usable(self) -> bool:
        """Whether it is there."""
        return not self._process.ended()

    def fork(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        log: IO[bytes],
    ) -> Forked:
        """Starts a worker.

        Args:
            argv: Module and arguments; ``PARENT`` stands for the parent's process id.
            cwd: Working directory.
            env: Its whole environment.
            pass_fds: Descriptors that it inherits under their numbers.
            log: Its standard output and error.

        Raises:
            OSError: The server has ended.
            ValueError: More than can be asked for.
        """
        fds = [*pass_fds, log.fileno()]
        request = {
            "argv": list(argv),
            "environment": dict(env),
            "folder": str(cwd),
            "numbers": fds,
        }
        data = json.dumps(request).encode()
        if len(data) > MAX_REQUEST_BYTES or len(fds) > MAX_FDS:
            raise ValueError(f"a worker with {len(fds)} descriptors and {len(data)} bytes to say")
        with self._lock:
            reply = self._ask(data, fds)
            self._workers += 1
        return Forked(self, reply)

    def reap(self, pid: int) -> int:
        """Exit code of a worker that has ended; SIGKILL's where nobody knows."""
        with self._lock:
            self._workers -= 1
        try:
            value = self.wait_for(self._ask(json.dumps({"reap": pid}).encode(), []))
        except OSError:
            return -signal.SIGKILL
        return int(value["returncode"])

    def wait_for(self, reply: _Reply) -> dict[str, Any]:
        """What was answered.

        Raises:
            ProcessLookupError: The server has ended before.
        """
        with self._lock:
            while reply.value is None and not reply.lost:
                try:
                    data = self._control.recv(MAX_REQUEST_BYTES)
                except OSError:
                    data = b""
                if data:
                    self._waiting.popleft().value = json.loads(data)
                    continue
                for each in self._waiting:
                    each.lost = True
                self._waiting.clear()
        if reply.value is None:
            raise ProcessLookupError("the process that forks workers has ended")
        return reply.value

    def close(self) -> None:
        """Ends it; its workers end with it."""
        self._control.close()
        self._process.end()

    def _ask(self, data: bytes, fds: Sequence[int]) -> _Reply:
        reply = _Reply()
        with self._lock:
            socket.send_fds(self._control, [data], list(fds))
            self._waiting.append(reply)
        return reply


class Forked:
    """A worker process, with what ``kopt_harness.proc`` asks of one."""

    def __init__(self, server: ForkServer, reply: _Reply) -> None:
        self._server = server
        self._reply = reply
        self._pidfd: int | None = None
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Process id; waits until the server has loaded its modules.

        Raises:
            ProcessLookupError: The server has ended, and the worker with it.
        """
        return int(self._server.wait_for(self._reply)["pid"])

    def has_ended(self) -> bool:
        """Whether it has ended; its process id is not used again until it is waited for."""
        return self.returncode is not None or self._ends_within(0)

    def is_lost(self) -> bool:
        """Whether its server has ended, and it with it."""
        return not self._server.usable()

    def send_signal(self, number: int) -> None:
        """Sends it a signal.

        Raises:
            ProcessLookupError: It has ended.
        """
        signal.pidfd_send_signal(self._fd(), number)

    def wait(self, timeout: float) -> int:
        """Reaps it.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """
        if self.returncode is None:
            if not self._ends_within(timeout):
                raise subprocess.TimeoutExpired("worker", timeout)
            try:
                self.returncode = self._server.reap(self.pid)
            except ProcessLookupError:
                self.returncode = -signal.SIGKILL
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None
        return self.returncode

    def _ends_within(self, timeout_s: float) -> bool:
        try:
            fd = self._fd()
        except ProcessLookupError:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def _fd(self) -> int:
        if self._pidfd is None:
            if self.returncode is not None:
                raise ProcessLookupError("the worker has ended")
            # The server keeps an ended worker as a zombie until it is asked to reap it.
            self._pidfd = os.pidfd_open(self.pid)
        return self._pidfd


def fork(
    modules: Sequence[str],
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    pass_fds: Sequence[int],
    log: Path,
) -> Forked | None:
    """Starts a worker from the server for its modules and environment.

    Args:
        modules: What the server loads before it forks.
        argv: Module and arguments; ``PARENT`` stands for the parent's process id.
        cwd: Working directory.
        env: Its whole environment; private folders aside, all workers of a server have the same.
        pass_fds: Descriptors that it inherits under their numbers.
        log: File that its standard output and error are appended to.

    Returns:
        The worker; None where there is no server, or it has ended: start a program instead.
    """
    shared = without_private(env)
    # A fork of this process has servers of its own.
    key = (os.getpid(), tuple(modules), tuple(sorted(shared.items())))
    with log.open("ab") as sink:
        try:
            with _lock:
                server = _servers.get(key)
                if server is None:
                    _make_room()
                    server = _servers[key] = ForkServer(modules, shared, log)
                if not server.usable():
                    return None
                # Within the lock: nobody else makes room by ending it meanwhile.
                return server.fork(argv, cwd=cwd, env=env, pass_fds=pass_fds, log=sink)
        except (OSError, ValueError):
            return None


@atexit.register
def close_servers() -> None:
    """Ends all servers of this process; the next worker starts a new one."""
    with _lock:
        for key in [key for key in _servers if key[0] == os.getpid()]:
            _servers.pop(key).close()


def _make_room() -> None:
    for key in [key for key, server in _servers.items() if server.idle]:
        if len(_servers) >= _MAX_SERVERS:
            _servers.pop(key).close()
