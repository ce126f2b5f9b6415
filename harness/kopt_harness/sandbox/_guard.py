"""The two processes above a sandboxed one.

The *outer* process was started by the orchestrator. It keeps the log, passes on how the
sandboxed process has ended, and ends everything when it is told to or the orchestrator is
gone. The *inner* one is the first process of the process namespace: with it everything in the
namespace ends. It holds the limits that the kernel has none for.

Neither runs candidate code, and neither changes credentials, so that the kernel's signal on
the death of a parent stays armed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, NoReturn

from .policy import Policy
from .processes import (
    Use,
    descendants,
    end_all,
    exact_memory_bytes,
    measure,
    quick_descendants,
)

__all__ = ["Log", "Watch", "guard", "oversee"]

_POLL_S = 0.05
_END_S = 4.0
_REAP_S = 1.0
"""Without limits to look after there are only orphans to collect."""
_LARGE_SHARE = 8
"""Where the machine is short of memory, whoever holds an eighth of it is at fault."""
_REPORT_BYTES = 4096
_CHUNK_BYTES = 65536


class Log:
    """Copies a pipe to a file of limited size, of which the end is kept."""

    def __init__(self, pipe_fd: int, file_fd: int, max_bytes: int) -> None:
        self._pipe = pipe_fd
        self._file = file_fd
        self._max = max_bytes
        os.set_blocking(pipe_fd, False)

    @property
    def pipe_fd(self) -> int:
        """What is read from."""
        return self._pipe

    @property
    def fds(self) -> tuple[int, int]:
        """Pipe and file."""
        return self._pipe, self._file

    def drain(self) -> bool:
        """Copies what is there; false at the end of the pipe."""
        for _ in range(64):  # another look at the other descriptors now and then
            try:
                data = os.read(self._pipe, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._write(data)
        return True

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size + len(data) > self._max:
            keep = self._max // 2
            with open(f"/proc/self/fd/{self._file}", "rb") as stream:  # noqa: PTH123
                stream.seek(max(0, size - keep))
                tail = stream.read(keep)
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, b"... the beginning is left out ...\n" + tail)
        os.write(self._file, data)


class Watch:
    """The limits that the inner process looks after."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pid = int(os.readlink("/proc/self"))  # noqa: PTH115  differs where /proc is older
        # With a /proc of its own there is nobody else to look through.
        alone = self._pid == 1 or not os.path.exists("/proc/thread-self/children")  # noqa: PTH110
        self._members = descendants if alone else quick_descendants
        self._total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def exceeded(self) -> dict[str, str] | None:
        """Which limit, and a sentence about it; None while all hold."""
        policy = self._policy
        pids, shared_bytes = self._members(self._pid), self._shared_bytes()
        # Before their threads are counted, which takes long beside as many as a fork bomb makes.
        if policy.processes and len(pids) > policy.processes:
            return self._too_many(len(pids))
        use = measure(pids, shared_bytes)
        if policy.processes and use.threads > policy.processes:
            return self._too_many(use.threads)
        if policy.memory_bytes and use.memory_bytes > policy.memory_bytes:
            exact = exact_memory_bytes(pids, shared_bytes)
            use = use._replace(memory_bytes=use.memory_bytes if exact is None else exact)
        if policy.memory_bytes and use.memory_bytes > policy.memory_bytes:
            held, limit = _gb(use.memory_bytes), _gb(policy.memory_bytes)
            text = f"it held {held} of memory; the limit is {limit}"
            return {"limit": "memory-limit", "detail": text}
        return self._machine(use) or self._disk()

    def _too_many(self, count: int) -> dict[str, str]:
        text = f"it had {count} processes and threads; the limit is {self._policy.processes}"
        return {"limit": "process-limit", "detail": text}

    def _machine(self, use: Use) -> dict[str, str] | None:
        floor = self._policy.machine_floor_bytes
        if not floor or use.memory_bytes < self._total // _LARGE_SHARE:
            return None
        available = _available_bytes()
        if available >= floor:
            return None
        text = f"it held {_gb(use.memory_bytes)} and left the machine {_gb(available)} of memory"
        return {"limit": "memory-limit", "detail": text}

    def _disk(self) -> dict[str, str] | None:
        floor = self._policy.disk_floor_bytes
        for path in self._policy.writable if floor else ():
            found = os.statvfs(path)
            free = found.f_bavail * found.f_frsize
            if free < floor:
                text = f"it left {_gb(free)} of disk space at {path}"
                return {"limit": "disk-limit", "detail": text}
        return None

    def _shared_bytes(self) -> int:
        fd = self._policy.shared_fd
        return os.fstat(fd).st_size if fd >= 0 else 0


def guard(worker: int, report_fd: int, watch: Watch | None) -> NoReturn:
    """The inner process: until the worker ends, a limit is passed or the outer one is gone."""
    poll = select.poll()
    poll.register(report_fd, select.POLLIN)
    worker_fd = _pidfd(worker)
    if worker_fd is not None:
        poll.register(worker_fd, select.POLLIN)
    every_s = _POLL_S if watch is not None or worker_fd is None else _REAP_S
    next_look = time.monotonic()
    while True:
        ready = {fd for fd, _ in poll.poll(max(0.0, next_look - time.monotonic()) * 1000)}
        report = _reap(worker)
        if report is None and time.monotonic() >= next_look:
            report = None if watch is None else watch.exceeded()
            next_look = time.monotonic() + every_s
        if report is not None or report_fd in ready:
            break
    if report is not None:
        os.write(report_fd, json.dumps(report).encode())
    if os.getpid() != 1:  # else the kernel ends all others of the namespace
        end_all(int(os.readlink("/proc/self")), _END_S)  # noqa: PTH115
    os._exit(0)


def oversee(inner: int, report_fd: int, status_fd: int, log: Log | None) -> NoReturn:
    """The outer process: waits, and ends as the sandboxed process has ended."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda *_: None)
    poll = select.poll()
    watched = [report_fd, wake, *([log.pipe_fd] if log else [])]
    for fd in watched:
        poll.register(fd, select.POLLIN)
    if status_fd >= 0:
        poll.register(status_fd, 0)  # only that the other end is closed
    report: dict[str, Any] = {}
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if log and log.pipe_fd in ready and not log.drain():
            poll.unregister(log.pipe_fd)
        if report_fd in ready:
            report = _read_report(report_fd)
            break
        if ready & {wake, status_fd}:
            break
    if not report:  # told to end; of the namespace's first process the kernel ends all others
        os.kill(inner, signal.SIGKILL)
    gone = _wait(inner, log) and end_all(os.getpid(), _END_S)
    if log:
        log.drain()
    if status_fd >= 0:
        text = json.dumps(report | {"gone": gone}) + "\n"
        with contextlib.suppress(OSError):
            os.write(status_fd, text.encode())
    _end_like(report)


def _wait(inner: int, log: Log | None) -> bool:
    """Reaps the inner process; a process namespace is empty when that returns."""
    deadline = time.monotonic() + _END_S
    killed = False
    while os.waitpid(inner, os.WNOHANG)[0] == 0:
        if log:
            log.drain()
        if time.monotonic() > deadline:
            if killed:
                return False
            os.kill(inner, signal.SIGKILL)
            killed, deadline = True, time.monotonic() + _END_S
        time.sleep(0.001)
    return True


def _end_like(report: dict[str, Any]) -> NoReturn:
    number = report.get("signal", signal.SIGKILL if "exit" not in report else 0)
    if number:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pause()
    os._exit(report["exit"])


def _read_report(fd: int) -> dict[str, Any]:
    try:
        data = os.read(fd, _REPORT_BYTES)
        report = json.loads(data) if data else {}
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _reap(worker: int) -> dict[str, Any] | None:
    """Collects ended children, orphans among them; how the worker has ended, if it has."""
    found = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return found
            if pid == worker:
                code = os.waitstatus_to_exitcode(status)
                found = {"exit": code} if code >= 0 else {"signal": -code}
    except ChildProcessError:
        return found


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _available_bytes() -> int:
    with open("/proc/meminfo", "rb") as stream:  # noqa: PTH123
        for line in stream:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
