"""The processes of a sandbox as ``/proc`` shows them: who they are, what they use, their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

__all__ = [
    "Use",
    "children",
    "descendants",
    "end_all",
    "exact_memory_bytes",
    "is_stopped",
    "measure",
    "processor_ns",
    "quick_descendants",
    "read_proc",
    "rename",
    "stat_fields",
]

_END_POLL_S = 0.002
_READ_BYTES = 1 << 16
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
"""A kernel may be built without."""
_STILL = (b"T", b"t", b"Z", b"X")
_SCHEDULED = 2
"""Kind of a clock that counts what the scheduler gave."""


class Use(NamedTuple):
    """What a group of processes uses together."""

    memory_bytes: int
    threads: int


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started, or adopted."""
    return _by_parent().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, zombies too, parents before children."""
    by_parent = _by_parent()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = by_parent.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def measure(pids: list[int], shared_bytes: int) -> Use:
    """Anonymous and shared memory, and threads; quick, and pages that several map count for each.

    Args:
        pids: As ``/proc`` numbers them.
        shared_bytes: What each process may have mapped without being charged.
    """
    memory, threads = 0, 0
    for pid in pids:
        fields = _status(pid)
        shared = max(0, fields.get(b"RssShmem", 0) * 1024 - shared_bytes)
        memory += fields.get(b"RssAnon", 0) * 1024 + shared
        threads += fields.get(b"Threads", 0)
    return Use(memory, threads)


def quick_descendants(pid: int) -> list[int]:
    """As ``descendants``, and may miss some that are just coming or going.

    It does not look at every process of the machine, of which there may be thousands, where the
    kernel lists the children of a thread.
    """
    if not _LISTS_CHILDREN:
        return descendants(pid)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = _children_of(waiting.pop(0))
        found += below
        waiting += below
    return found


def is_stopped(pid: int, *, patient: bool = False) -> bool:
    """Whether every thread of a process is stopped, or has ended.

    The first thread may have ended, or be held by a tracer, while others go on.

    Args:
        pid: As ``/proc`` numbers it.
        patient: Whether one that waits in the kernel counts: it stops before it comes back.
    """
    still = _STILL + ((b"D",) if patient else ())
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return True
    for thread in threads:
        with contextlib.suppress(OSError, IndexError):
            if stat_fields(f"{pid}/task/{thread}")[0] not in still:
                return False
    return True


def processor_ns(pid: int) -> int | None:
    """Processor time of all threads of a process, ended ones too; None where it is not there."""
    try:
        # The clock of another process: its number, inverted, before three bits of kind.
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except OSError:
        return None


def exact_memory_bytes(pids: list[int], shared_bytes: int) -> int | None:
    """Anonymous and shared memory, every page once; slow. None where it cannot be read.

    Args:
        pids: As ``/proc`` numbers them.
        shared_bytes: What they may have mapped together without being charged.
    """
    anonymous, shared = 0, 0
    for pid in pids:
        try:
            fields = _numbers(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon", b"Pss_Shmem"))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        except OSError:
            return None
        anonymous += fields.get(b"Pss_Anon", 0) * 1024
        shared += fields.get(b"Pss_Shmem", 0) * 1024
    return anonymous + max(0, shared - shared_bytes)


def end_all(pid: int, deadline_s: float) -> bool:
    """Kills what is below ``pid``, which is this process, until nothing is left; reaps it.

    They are stopped first, so that none of them starts another one meanwhile.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        _reap()
        below = descendants(pid)
        if not below:
            return True
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for one in below:
                try:
                    os.kill(one, number)
                except OSError:
                    continue
        if time.monotonic() > deadline:
            return False
        time.sleep(_END_POLL_S)


def rename(title: str) -> None:
    """Changes the command line of this process, as a process list shows it."""
    try:
        fields = stat_fields("self")
    except OSError:
        return
    import ctypes  # noqa: PLC0415  only processes that were forked here come this way

    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
        text = title.encode()[: end - start - 1]
        ctypes.memmove(start, text, len(text))


def read_proc(path: str) -> bytes:
    """A file of ``/proc``, whole; quicker than a stream, and thousands are read in a comparison.

    Raises:
        OSError: It is not there, or its process has ended meanwhile.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def stat_fields(pid: int | str) -> list[bytes]:
    """Fields of ``/proc/PID/stat`` behind the name, the state first.

    Raises:
        OSError: There is no such process.
    """
    # The name in brackets may contain anything, brackets too.
    return read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            # A thread that has just ended has given its children to another one.
            with contextlib.suppress(OSError):
                words = read_proc(f"/proc/{pid}/task/{thread}/children").split()
                found += [int(word) for word in words]
    return found


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib is slow to import
        if name.isdigit():
            parent = _parent(name)
            if parent is not None:
                found.setdefault(parent, []).append(int(name))
    return found


def _parent(name: str) -> int | None:
    try:
        return int(stat_fields(name)[1])
    except (OSError, IndexError, ValueError):
        return None


def _status(pid: int) -> dict[bytes, int]:
    """What is counted of a process; nothing of one that is gone."""
    try:
        return _numbers(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem", b"Threads"))
    except OSError:
        return {}


def _numbers(path: str, names: tuple[bytes, ...]) -> dict[bytes, int]:
    lines = read_proc(path).split(b"\n")
    found = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if name in names:
            found[name] = int(value.split()[0])
    return found


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
