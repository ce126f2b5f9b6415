"""Starts judge and candidate processes and speaks to them from the orchestrator.

Nothing here imports torch. Each worker has a session, a HOME, temporary and cache folders
of its own, an environment from an allow-list, and inherits its channel and the arena. A
candidate is started in a sandbox (``kopt_harness.sandbox``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness import proc
from kopt_harness.environ import cache_environment, worker_environment
from kopt_harness.sandbox import Policy, default_memory_bytes, default_processes, pick_uid
from kopt_harness.sandbox import launch as sandbox
from kopt_harness.sandbox.processes import (
    children,
    descendants,
    is_stopped,
    processor_ns,
    quick_descendants,
)

from . import forkserver
from .claims import plain_text
from .wire import Channel, ChannelClosedError, ChannelTimeoutError, WireError

__all__ = [
    "MODULES",
    "SANDBOXED",
    "Observer",
    "WorkerClient",
    "WorkerFailedError",
    "arena_file",
]

MODULES = {
    "candidate": "kopt_harness.worker.candidate",
    "judge": "kopt_harness.worker.judge",
    "observed": "kopt_harness.worker.observe",
    "witness": "kopt_harness.worker.witness",
}
"""Module that each kind of worker runs."""
SANDBOXED = frozenset({"candidate", "observed"})
"""Kinds that run candidate code."""
_FORKED = (
    (MODULES["candidate"],),
    (MODULES["judge"], MODULES["witness"]),
)
"""Modules that are loaded together, once, by a server that forks the workers which run them."""

_MAX_LOG_BYTES = 1 << 20
_MAX_PHASE_NS = 1 << 62
_MAX_PHASES = 64
_FREEZE_S = 10.0
"""A machine on which many others run gives each its turn in that time, and in it they stop."""
_PATIENT_S = 0.1
"""From then on what waits in the kernel counts as stopped: the parent of a ``vfork`` does."""
_STILL_NS = 1_000_000
"""Processor time that a stopped process may seem to use."""
_LAST_WORDS_S = 2.0
"""Between the end of a channel and that of its process."""


class Observer(NamedTuple):
    """A profiler that is to start a candidate."""

    name: str
    """Of ``kopt_harness.external``."""
    report_fd: int
    """The end of a pipe that it prints to; the candidate does not have it."""
    folders: tuple[str, ...] = ()
    """What it needs to read beside the system."""


class WorkerFailedError(Exception):
    """A worker crashed, timed out, broke the protocol or answered with an error."""

    def __init__(self, kind: str, detail: str, *, code: str = "") -> None:
        super().__init__(detail)
        self.kind = kind
        """``crash``, ``timeout``, ``error``, ``unavailable``, ``infra``, or ``lost``: it ended
        because the process that had forked it did."""
        self.detail = detail
        self.code = code
        """``memory-limit``, ``process-limit`` or ``disk-limit`` where its sandbox ended it."""


class Caches(NamedTuple):
    """What libraries compile, kept for several processes of one trusted solution."""

    folder: Path
    uid: int
    """User that all of them become; 0 where no other user is granted."""

    @classmethod
    def make(cls) -> Caches:
        """An empty folder of a user that nobody else is."""
        folder = Path(tempfile.mkdtemp(prefix=f"{sandbox.WORKER_PREFIX}caches-"))
        try:
            uid = pick_uid()
        except OSError:
            return cls(folder, 0)
        os.chown(folder, uid, uid)
        return cls(folder, uid)

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def arena_file() -> int:
    """An anonymous file that judge and candidates map; the caller closes it."""
    return os.memfd_create("kopt-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


class WorkerClient:
    """One worker process; requests are answered one at a time."""

    def __init__(
        self,
        module: str,
        arena_fd: int,
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        readable: Sequence[Path] | None = None,
        roots: Sequence[Path] = (),
        limits: Mapping[str, Any] | None = None,
        observer: Observer | None = None,
        caches: Caches | None = None,
    ) -> None:
        """Starts it.

        Args:
            module: Key of ``MODULES``.
            arena_fd: Memory that it shares with other workers.
            environment: Variables beside those of every worker.
            log: File for what it prints.
            readable: What a sandboxed worker needs beside the system and its packages: the
                folder of the build that it is to load.
            roots: Projects whose definitions and evidence it must not see.
            limits: Fields of the sandbox's policy that differ from the default.
            observer: Who starts an ``observed`` candidate.
            caches: Where its libraries find what others have compiled, and leave what they compile.
        """
        self._folder = Path(tempfile.mkdtemp(prefix=f"{sandbox.WORKER_PREFIX}{module}-"))
        self._folder.chmod(0o711)  # another user must get to its HOME
        self._home = self._folder / "home"
        self._home.mkdir(mode=0o700)
        self._log = log or self._folder / "worker.log"
        self._sandboxed = module in SANDBOXED
        self.module = module
        sandbox.shield()
        variables = worker_environment(self._home) | dict(environment or {})
        if caches is not None:
            variables |= cache_environment(caches.folder)
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (theirs.fileno(), arena_fd, *((observer.report_fd,) if observer else ()))
            if self._sandboxed:
                policy = Policy(
                    home=str(self._home),
                    readable=tuple(str(path.absolute()) for path in readable or ()),
                    writable=() if caches is None else (str(caches.folder),),
                    uid=0 if caches is None else caches.uid,
                    search=sandbox.search_paths(variables),
                    protected=sandbox.protected_paths(roots),
                    fds=fds,
                    shared_fd=arena_fd,
                    title=module,
                    **(_limits() | dict(limits or {})),
                )
                words = (observer.name,) if observer else ()
                self._worker = self._start_sandboxed(policy, variables, words)
            else:
                argv = [MODULES[module], forkserver.PARENT, *map(str, fds)]
                self._worker = self._start(argv, variables, fds)
        self._channel = Channel(ours)
        self._owed = False
        """Whether a request has no answer yet."""
        self._pid: int | None = None
        self._inner: int | None = None
        self._stopped_ns: dict[int, int | None] | None = None
        """Processor time of its processes when they were stopped; None while they are not."""
        self._unruly = ""
        self.phases_ns: dict[str, int] = {}
        """Time by phase, as the worker reports it."""
        self.ending: proc.Ending | None = None
        """How it has ended, once it is closed."""

    def _start_sandboxed(
        self, policy: Policy, variables: Mapping[str, str], words: Sequence[str]
    ) -> proc.Worker:
        status, status_fd = os.pipe()
        policy_fd = policy._replace(status_fd=status_fd).to_file()
        try:
            module = MODULES[self.module]
            argv = sandbox.arguments(
                policy_fd, forkserver.PARENT, module, forkserver.PARENT, *policy.fds, *words
            )
            fds = (*policy.fds, status_fd, policy_fd)
            return self._start(argv, variables, fds, status_fd=status)
        finally:
            os.close(status_fd)
            os.close(policy_fd)

    def _start(
        self,
        argv: Sequence[str],
        variables: Mapping[str, str],
        fds: tuple[int, ...],
        *,
        status_fd: int | None = None,
    ) -> proc.Worker:
        """By a fork; as a program where the module is not the usual one, or nothing forks."""
        where: dict[str, Any] = {
            "cwd": self._home,
            "env": variables,
            "pass_fds": fds,
            "log": self._log,
        }
        for modules in _FORKED:
            if MODULES[self.module] in modules:
                forked = forkserver.fork(modules, argv, **where)
                if forked is not None:
                    return proc.Worker(forked, status_fd)
        words = [str(os.getpid()) if word == forkserver.PARENT else word for word in argv]
        return proc.start([sys.executable, "-P", "-m", *words], **where, status_fd=status_fd)

    @property
    def pid(self) -> int:
        """Process id of the worker itself; in a sandbox not the one that was started.

        It is there once the worker has answered.
        """
        if self._pid is None:
            self._pid = next(iter(self.processes()), self._worker.pid)
        return self._pid

    def processes(self, *, thorough: bool = False) -> list[int]:
        """Process ids of the worker and of everything that it has started, but for its guards.

        Args:
            thorough: Looks at every process of the machine, and misses none that is just coming.
        """
        below = descendants if thorough else quick_descendants
        if not self._sandboxed:
            return [self._worker.pid, *below(self._worker.pid)]
        if self._inner is None:
            self._inner = next(iter(children(self._worker.pid)), None)
        return [] if self._inner is None else below(self._inner)

    def freeze(self) -> None:
        """Stops everything of it until ``thaw``; its guards go on.

        Looks again until nothing runs: processes can wake each other, or start new ones. What is
        stopped starts none, so looks that find the same ones, all of them stopped, have found all.
        Where there is more than the worker itself, other lists are read as well: of children that
        come and go one list may miss some. ``restless`` says whether it has failed.
        """
        start = time.monotonic()
        agreed: set[int] = set()
        looks = 0
        self._unruly = self.restless()  # where it is stopped already
        self._stopped_ns = None
        while (waited_s := time.monotonic() - start) < _FREEZE_S:
            found = set(self.processes())
            if len(agreed) > 1:
                found.update(self.processes(thorough=True), self.processes())
            running = [pid for pid in found if not is_stopped(pid, patient=waited_s > _PATIENT_S)]
            for pid in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
            looks = 0 if running else looks + 1 if found == agreed else 1
            agreed = set() if running else found
            if looks >= (2 if len(found) > 1 else 3):
                self._stopped_ns = {pid: processor_ns(pid) for pid in found}
                return
        self._unruly = self._unruly or f"its processes could not be stopped within {_FREEZE_S:g} s"

    def thaw(self) -> None:
        """Lets it go on."""
        self._unruly = self.restless()
        self._stopped_ns = None
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    def restless(self) -> str:
        """What it did while it was to be stopped, so far; empty where it was still.

        A process can have signals sent to itself that wake it: by timers, by children that end.
        So what counts is the processor time that it has used.
        """
        if self._unruly or self._stopped_ns is None:
            return self._unruly
        for pid in self.processes():
            before, now = self._stopped_ns.get(pid), processor_ns(pid)
            if pid not in self._stopped_ns:
                return "a process of it was started while it was stopped"
            if before is not None and now is not None and now - before > _STILL_NS:
                used_ms = (now - before) / 1e6
                return f"it used {used_ms:.1f} ms of a processor while it was stopped"
        return ""

    def request(self, type_: str, *, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Where somebody was interrupted while it waited for an answer, that one comes first, and is
        thrown away.

        Raises:
            WorkerFailedError: the worker is of no more use, unless the kind is ``error``.
        """
        if self._owed:
            try:
                self.answer(timeout_s=timeout_s)
            except WorkerFailedError as error:
                if error.kind != "error":
                    raise
        self.send(type_, **fields)
        return self.answer(timeout_s=timeout_s)

    def send(self, type_: str, **fields: Any) -> None:
        """Sends a request whose answer is fetched later."""
        try:
            self._channel.send(type_, **fields)
            self._owed = True
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
            raise self._epitaph() from error
        except WireError as error:
            raise self._failed("crash", f"broken protocol: {error}") from error
        self._owed = message["type"] not in ("done", "error")
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

    def finish(self, timeout_s: float) -> bool:
        """Lets the process end by itself, as it does when its channel is closed.

        Returns:
            Whether it has; ``close`` it in any case.
        """
        self._channel.close()
        return self._worker.wait(timeout_s)

    def kill(self) -> None:
        """Kills it under the hands of another thread, which is to ``close`` it."""
        self._worker.kill()

    def close(self) -> proc.Ending:
        """Kills the process and everything below it, and removes its folders."""
        self._channel.close()
        self.ending = self._worker.end()
        proc.kill_by_home(self._home)
        shutil.rmtree(self._folder, ignore_errors=True)
        return self.ending

    def _failed(self, kind: str, detail: str) -> WorkerFailedError:
        if kind == "crash" and self._worker.is_lost():
            kind, detail = "lost", "the process that had forked it has ended"
        return WorkerFailedError(kind, f"{self.module}: {plain_text(detail)}")

    def _epitaph(self) -> WorkerFailedError:
        # The channel closes a moment before the process ends, and the guard tells how it did.
        self._worker.wait(_LAST_WORDS_S)
        ending = self._worker.end()
        if ending.limit:
            detail = f"{self.module}: the process was ended: {ending.detail}"
            return WorkerFailedError("crash", detail, code=ending.limit)
        code = ending.returncode
        end = f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
        last = [line for line in self.log_text().splitlines() if line.strip()][-1:]
        text = f": {plain_text(last[0][:300])}" if last else ""
        return self._failed("crash", f"the process {end}{text}")

    def _count(self, phases: Mapping[str, Any]) -> None:
        for name, ns in phases.items():
            is_known = name in self.phases_ns or len(self.phases_ns) < _MAX_PHASES
            if is_known and isinstance(ns, int) and 0 <= ns < _MAX_PHASE_NS:
                self.phases_ns[name] = self.phases_ns.get(name, 0) + ns


def _limits() -> dict[str, int]:
    """Of a candidate, where nothing else is asked for."""
    return {
        "memory_bytes": default_memory_bytes(),
        "machine_floor_bytes": 1 << 30,
        "processes": default_processes(),
        "file_bytes": 4 << 30,
        "scratch_bytes": 4 << 30,
        "open_files": 4096,
        "log_bytes": 2 * _MAX_LOG_BYTES,
    }
