"""Starts judge and candidate processes and speaks to them from the orchestrator.

Nothing here imports torch. Each worker has a session, a HOME, temporary and cache folders
of its own, an environment from an allow-list, and inherits its channel and the arena.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kopt_harness import proc
from kopt_harness.environ import worker_environment

from .claims import plain_text
from .wire import Channel, ChannelClosedError, ChannelTimeoutError, WireError

__all__ = ["WorkerClient", "WorkerFailedError", "arena_file"]

_MAX_LOG_BYTES = 1 << 20


class WorkerFailedError(Exception):
    """A worker crashed, timed out, broke the protocol or answered with an error."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        """``crash``, ``timeout``, ``error``, ``unavailable`` or ``infra``."""
        self.detail = detail


def arena_file() -> int:
    """An anonymous file that judge and candidates map; the caller closes it."""
    return os.memfd_create("kopt-arena", os.MFD_CLOEXEC)


class WorkerClient:
    """One worker process; requests are answered one at a time."""

    def __init__(
        self,
        module: str,
        arena_fd: int,
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix=f"kopt-{module}-"))
        self._log = log or self._home / "worker.log"
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [
                sys.executable,
                "-P",
                "-m",
                f"kopt_harness.worker.{module}",
                str(os.getpid()),
                str(theirs.fileno()),
                str(arena_fd),
            ]
            self._worker = proc.start(
                argv,
                cwd=self._home,
                env=worker_environment(self._home) | dict(environment or {}),
                pass_fds=(theirs.fileno(), arena_fd),
                log=self._log,
            )
        self._channel = Channel(ours)
        self.module = module
        self.phases_ns: dict[str, int] = {}
        """Time by phase, as the worker reports it."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._worker.pid

    def request(self, type_: str, *, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            WorkerFailedError: the worker is of no more use, unless the kind is ``error``.
        """
        self.send(type_, **fields)
        return self.answer(timeout_s=timeout_s)

    def send(self, type_: str, **fields: Any) -> None:
        """Sends a request whose answer is fetched later."""
        try:
            self._channel.send(type_, **fields)
        except WireError as error:
            raise self._failed("crash", str(error)) from error

    def answer(self, *, timeout_s: float, expect: str = "done") -> dict[str, Any]:
        """The next frame, which must be of type ``expect``."""
        start = time.monotonic()
        try:
            message = self._channel.receive(timeout_s)
        except ChannelTimeoutError as error:
            waited_s = time.monotonic() - start
            raise self._failed("timeout", f"no answer within {waited_s:.1f} s") from error
        except ChannelClosedError as error:
            raise self._failed("crash", self._epitaph()) from error
        except WireError as error:
            raise self._failed("crash", f"broken protocol: {error}") from error
        if message["type"] == "error":
            kind = message.get("kind")
            kind = kind if kind in ("unavailable", "infra") else "error"
            raise WorkerFailedError(kind, plain_text(str(message.get("message", ""))))
        if message["type"] != expect:
            raise self._failed("crash", f"broken protocol: {message['type']!r}, not {expect!r}")
        phases = message.pop("phases", {})
        if not isinstance(phases, dict):
            raise self._failed("crash", "broken protocol: 'phases' is no object")
        self._count(phases)
        return message

    def log_text(self) -> str:
        """The end of what the worker has printed."""
        if not self._log.is_file():
            return ""
        try:
            # A candidate could put a link to another file in its place.
            descriptor = os.open(self._log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with open(descriptor, "rb") as stream:  # noqa: PTH123  a descriptor, not a path
            stream.seek(max(0, os.fstat(descriptor).st_size - _MAX_LOG_BYTES))
            return stream.read().decode(errors="replace")

    def close(self) -> None:
        """Kills the process and everything below it, and removes its folders."""
        self._channel.close()
        self._worker.kill()
        proc.kill_by_home(self._home)
        shutil.rmtree(self._home, ignore_errors=True)

    def _failed(self, kind: str, detail: str) -> WorkerFailedError:
        return WorkerFailedError(kind, f"{self.module}: {detail}")

    def _epitaph(self) -> str:
        code = self._worker.kill()
        end = f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
        last = [line for line in self.log_text().splitlines() if line.strip()][-1:]
        return f"the process {end}" + (f": {plain_text(last[0][:300])}" if last else "")

    def _count(self, phases: Mapping[str, Any]) -> None:
        for name, ns in phases.items():
            if isinstance(ns, int):
                self.phases_ns[name] = self.phases_ns.get(name, 0) + ns
