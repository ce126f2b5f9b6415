"""The one module that owns ``subprocess``: run a program, capture it, and end all of it.

Covered: output is captured up to a cap (its beginning and its end are kept), a time limit,
and the end of everything that the program started in its own session or below itself. Not
covered: a descendant that left the session and whose parents have ended; untrusted code runs
in ``kopt_harness.sandbox``, whose first process looks after those.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import psutil

__all__ = [
    "Completed",
    "Ending",
    "Process",
    "Worker",
    "kill_by_home",
    "read_status",
    "run",
    "start",
]

_CHUNK_BYTES = 65536
_POLL_S = 0.05
_END_S = 12.0
"""How long the guard of a sandbox may take to end it; longer than its own patience."""
_GONE_S = 5.0

_Hand = Callable[[bytes], bool]
"""Takes output; false where no more is wanted."""


@dataclass(frozen=True)
class Completed:
    """A program that has ended."""

    argv: tuple[str, ...]
    returncode: int
    """Negative: the signal that ended it."""
    stdout: str
    stderr: str
    """Empty where the two were merged."""
    seconds: float
    timed_out: bool = False
    truncated: bool = False
    """Whether output beyond the cap was left out."""

    @property
    def ok(self) -> bool:
        """Ended by itself, with exit code 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def output(self) -> str:
        """Everything it printed: standard output, then standard error."""
        return "\n".join(part for part in (self.stdout, self.stderr) if part)


class Process(Protocol):
    """What is asked of a process that was started, by a fork or as a program."""

    returncode: int | None

    @property
    def pid(self) -> int: ...  # noqa: D102

    def has_ended(self) -> bool: ...  # noqa: D102

    def send_signal(self, number: int, /) -> None: ...  # noqa: D102

    def wait(self, timeout: float) -> int: ...  # noqa: D102

    def is_lost(self) -> bool: ...  # noqa: D102


class _Program(subprocess.Popen[bytes]):
    def has_ended(self) -> bool:
        """Whether it has ended; it stays a zombie, so that its group cannot be reused."""
        if self.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def is_lost(self) -> bool:
        """Nothing but this process has to live for it."""
        return False


class _Capture:
    """The beginning and the end of a stream, within a cap."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    @property
    def truncated(self) -> bool:
        return self._left_out > 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        excess = len(self._tail) - self._half
        if excess > 0:
            self._left_out += excess
            del self._tail[:excess]

    def text(self) -> str:
        gap = f"\n... {self._left_out} bytes left out ...\n".encode() if self._left_out else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    max_output_bytes: int = 1 << 20,
    stdin: bytes = b"",
    pass_fds: Sequence[int] = (),
    merge: bool = False,
    ask_first: bool = False,
    watch: _Hand | None = None,
) -> Completed:
    """Run a program to its end, or to the end of its time.

    Args:
        argv: Program and arguments.
        timeout_s: Wall-clock limit; past it the program and its descendants are killed.
        cwd: Working directory.
        env: Its whole environment; None inherits the caller's.
        max_output_bytes: Kept of each stream.
        stdin: What it reads; it never shares the caller's terminal.
        pass_fds: Descriptors that it inherits, besides the three standard ones.
        merge: Whether standard error goes into ``stdout``, in the order of writing.
        ask_first: Whether it is the guard of a sandbox, which ends the rest when asked to.
        watch: Gets all of standard output as it comes, the last of it after the end; false ends
            the program, and nothing more is handed over.

    Returns:
        Exit code and output; a failure of the program is not an exception.

    Raises:
        FileNotFoundError: ``argv[0]`` is not there.
    """
    command = tuple(str(part) for part in argv)
    started = time.monotonic()
    with tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        process = _Program(
            command,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            cwd=cwd,
            env=None if env is None else dict(env),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    captures = {
        stream: _Capture(max_output_bytes)
        for stream in (process.stdout, process.stderr)
        if stream is not None
    }
    hand = _ignore if watch is None else _until_false(watch)
    followed = False
    try:
        ended = _follow(process, captures, started + timeout_s, hand)
        followed = True
    finally:
        if ask_first and not process.has_ended():
            process.send_signal(signal.SIGTERM)
            _wait(process, _END_S)
        _end(process)
        for stream, capture in captures.items():
            # Whoever was interrupted is handed nothing more.
            _drain(stream, capture, hand if stream is process.stdout and followed else _ignore)
            stream.close()
    texts = [capture.text() for capture in captures.values()]
    return Completed(
        argv=command,
        returncode=_returncode(process),
        stdout=texts[0],
        stderr=texts[1] if len(texts) > 1 else "",
        seconds=time.monotonic() - started,
        timed_out=not ended,
        truncated=any(capture.truncated for capture in captures.values()),
    )


def read_status(fd: int) -> dict[str, Any]:
    """What the guard of a sandbox that has ended said in its status pipe."""
    os.set_blocking(fd, False)
    try:
        found = json.loads(os.read(fd, _CHUNK_BYTES))
    except (BlockingIOError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def kill_by_home(home: Path) -> int:
    """Kills every process whose environment has this ``HOME``; returns how many.

    A worker's home is its own, so these are what it started, however far they went: into
    another session, or orphaned by a parent that has ended. A forked worker, and what it
    forks, has the home in its title.
    """
    wanted, title = f"HOME={home}".encode(), f"kopt worker {home}".encode()
    killed = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = (entry / "cmdline").read_bytes().split(b"\0")[0] == title
            if named or wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


class Ending(NamedTuple):
    """How a worker has ended."""

    returncode: int
    """Negative: the signal that ended it."""
    survivors: tuple[int, ...]
    """Processes of it that could not be ended."""
    limit: str = ""
    """Code of the limit for which its sandbox ended it; else empty."""
    detail: str = ""
    """A sentence about the limit."""


class Worker:
    """A long-lived program in a session of its own; its output goes to a log file."""

    def __init__(self, process: Process, status_fd: int | None = None) -> None:
        self._process = process
        self._status_fd = status_fd
        self._ending: Ending | None = None

    @property
    def pid(self) -> int:
        """Process id, which is also that of its session."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.has_ended()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends by itself within a time."""
        return _wait(self._process, timeout_s)

    def is_lost(self) -> bool:
        """Whether what started it has ended, and took it along whatever it did."""
        return self._process.is_lost()

    def kill(self) -> None:
        """Kills the process, and waits for nothing: whoever waits for it sees that it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def end(self) -> Ending:
        """Ends it and everything below it; the same answer when it is asked again.

        A sandbox is asked to end first: only its guard can prove that nothing is left.
        """
        if self._ending is None:
            known = _family(self._process)
            if self._status_fd is not None and not self.ended():
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGTERM)
                _wait(self._process, _END_S)
            _end(self._process)
            report = self._report()
            self._ending = Ending(
                returncode=_returncode(self._process),
                survivors=_survivors(known),
                limit=str(report.get("limit", "")),
                detail=str(report.get("detail", "")),
            )
        return self._ending

    def _report(self) -> dict[str, Any]:
        if self._status_fd is None:
            return {}
        try:
            return read_status(self._status_fd)
        finally:
            os.close(self._status_fd)
            self._status_fd = None


def start(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    pass_fds: Sequence[int],
    log: Path,
    errors: Path | None = None,
    status_fd: int | None = None,
) -> Worker:
    """Start a program that is spoken to over inherited descriptors, or waited for.

    Args:
        argv: Program and arguments.
        cwd: Working directory.
        env: Its whole environment.
        pass_fds: Descriptors that it inherits, besides the three standard ones.
        log: File that its standard output and error are appended to.
        errors: File that standard error is appended to instead.
        status_fd: The orchestrator's end of a sandbox's status pipe, if the program enters one;
            the worker closes it.
    """
    with log.open("ab") as sink, (errors or log).open("ab") as error_sink:
        process = _Program(
            tuple(str(part) for part in argv),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=error_sink,
            cwd=cwd,
            env=dict(env),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    return Worker(process, status_fd)


def _follow(
    process: _Program,
    captures: Mapping[IO[bytes], _Capture],
    deadline: float,
    hand: _Hand,
) -> bool:
    """Read until the program ends or is not wanted any more (true), or its time ends (false)."""
    with selectors.DefaultSelector() as selector:
        for stream in captures:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while not process.has_ended():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            if not selector.get_map():  # it closed its output and goes on, or is about to end
                time.sleep(min(remaining, 0.002))
                continue
            for key, _ in selector.select(min(remaining, _POLL_S)):
                data = os.read(key.fd, _CHUNK_BYTES)
                if data:
                    captures[key.fileobj].add(data)  # type: ignore[index]
                    if key.fileobj is process.stdout and not hand(data):
                        return True
                else:
                    selector.unregister(key.fileobj)
    return True


def _end(process: Process) -> None:
    """Kill what is left of its session and of its descendants, and reap it."""
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        descendants = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    # A process that hangs in a driver ends when the driver lets it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _returncode(process: Process) -> int:
    return -signal.SIGKILL if process.returncode is None else process.returncode


def _wait(process: Process, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not process.has_ended():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _family(process: Process) -> list[psutil.Process]:
    """A process and all below it."""
    try:
        found = psutil.Process(process.pid)
        return [found, *found.children(recursive=True)]
    except (psutil.Error, ProcessLookupError):
        return []


def _survivors(known: Sequence[psutil.Process]) -> tuple[int, ...]:
    """Those that are still there after they were killed; what has ended is not waited for."""
    _, alive = psutil.wait_procs(known, timeout=_GONE_S)
    found = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return tuple(found)


def _drain(stream: IO[bytes], capture: _Capture, hand: _Hand) -> None:
    """Read what is already in the pipe; a process that got away may hold it open for ever."""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(stream.fileno(), _CHUNK_BYTES):
            capture.add(data)
            hand(data)


def _ignore(_: bytes) -> bool:
    return True


def _until_false(watch: _Hand) -> _Hand:
    """The same, and nothing more once it has returned false."""
    is_wanted = True

    def hand(data: bytes) -> bool:
        nonlocal is_wanted
        is_wanted = is_wanted and watch(data)
        return is_wanted

    return hand
