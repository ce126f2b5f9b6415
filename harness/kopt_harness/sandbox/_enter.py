"""Entering a sandbox: what is tried, in which order, and what was granted."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from . import _landlock, _linux
from ._guard import Log, Watch, guard, oversee
from ._identity import (
    can_use,
    drop_capabilities,
    pick_uid,
    refuse_new_privileges,
    set_dumpable,
)
from ._root import enter_root
from .paths import DEVICES, gpu_devices, interpreter_paths, readable_paths
from .policy import Policy
from .processes import rename

__all__ = ["die_with_parent", "enter", "enter_user_namespace", "in_force"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGKILL, _SIGTERM = 9, 15
_OOM_FIRST = "1000"
_SLACK = 64

_record: dict[str, Any] | None = None


def in_force() -> dict[str, Any] | None:
    """What was granted to this process; None where it has entered no sandbox."""
    return None if _record is None else dict(_record)


def die_with_parent(parent_pid: int, number: int = _SIGKILL) -> bool:
    """Asks the kernel for a signal when the process that started this one ends.

    Returns:
        Whether it will come.

    Raises:
        SystemExit: The parent has ended already.
    """
    try:
        _linux.prctl(_PR_SET_PDEATHSIG, number)
        granted = True
    except OSError:
        granted = False
    if os.getppid() != parent_pid:
        raise SystemExit("the orchestrator is gone")
    return granted


def enter(policy: Policy, parent_pid: int) -> dict[str, Any]:
    """Puts this process into a sandbox, as far as this machine grants one.

    Forks twice without running another program. The caller goes on in the innermost process;
    the other two end when it does.

    Args:
        policy: What is to be granted and limited.
        parent_pid: The process that has started this one.

    Returns:
        What was granted: one entry a mechanism, with a reason beside each that was not.
    """
    started = time.monotonic()
    entry = _Entry(policy)
    entry.note("dies_with_parent", lambda: _or_refuse(die_with_parent(parent_pid, _SIGTERM)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    record = entry.outer()
    record["enter_ms"] = round((time.monotonic() - started) * 1e3, 1)
    global _record  # noqa: PLW0603  a process enters once
    _record = record
    return dict(record)


class _Entry:
    """One process on its way in; each fork takes along what is known by then."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._record: dict[str, Any] = {"own_session": os.getsid(0) == os.getpid()}
        self._readable = readable_paths(policy)
        self._uid: int | None = None
        self._own_root = False

    def note(self, name: str, attempt: Callable[[], object]) -> bool:
        """Tries a mechanism, and writes down whether it was granted, or why not."""
        if name in self._policy.without:
            self._record[name] = False
            self._record[f"{name}_reason"] = "switched off by a test"
            return False
        try:
            attempt()
        except OSError as error:
            self._record[name] = False
            self._record[f"{name}_reason"] = error.strerror or str(error)
            return False
        self._record[name] = True
        return True

    def outer(self) -> dict[str, Any]:
        """Namespaces that a parent makes for its child; the outer process stays in here."""
        policy = self._policy
        self.note("user_namespace", enter_user_namespace)
        self._unshare("pid")
        _linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        log = self._log()
        near, far = socket.socketpair()
        inner = os.fork()
        if inner:
            far.close()
            if log:
                os.dup2(log.fds[1], 2)  # what goes wrong in the guard itself
            self._close_all_but((near.fileno(), policy.status_fd, *(log.fds if log else ())))
            rename(f"kopt guard of the {policy.title}")
            oversee(inner, near.fileno(), policy.status_fd, log)
        near.close()
        self._close_all_but((far.fileno(), *policy.fds))
        return self._inner(far)

    def _inner(self, report: socket.socket) -> dict[str, Any]:
        """The first process of the namespace: everything that needs privileges."""
        policy = self._policy
        set_dumpable(dumpable=False)
        _linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        for name in ("mount", "network", "ipc", "uts"):
            self._unshare(name)
        self.note("other_uid", self._pick_uid)
        self.note("own_root", self._enter_root)
        if self._uid is not None:
            self._check_uid(self._uid)
        if self._uid is not None:
            self._hand_over(self._uid)
        watch = Watch(policy)
        worker = os.fork()
        if worker:
            keep = (report.fileno(), policy.shared_fd)
            self._close_all_but(keep)
            rename(f"kopt init of the {policy.title}")
            guard(worker, report.fileno(), watch)
        report.close()
        return self._worker()

    def _worker(self) -> dict[str, Any]:
        """The sandboxed process itself: it gives up what is left."""
        policy = self._policy
        _linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._limits()
        _write("/proc/self/oom_score_adj", _OOM_FIRST)
        self.note("no_capabilities", lambda: drop_capabilities(self._uid))
        self.note("no_new_privileges", refuse_new_privileges)
        set_dumpable(dumpable=True)
        # Credentials have changed, which disarms it.
        _linux.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        self.note("landlock", self._landlock)
        os.chdir(policy.folder or policy.home)
        return self._record

    def _unshare(self, name: str) -> None:
        self.note(f"{name}_namespace", lambda: _linux.unshare(_linux.CLONE[name]))

    def _enter_root(self) -> None:
        if not self._record["mount_namespace"]:
            raise OSError("it needs a mount namespace")
        new_proc = bool(self._record["pid_namespace"])
        self._record |= enter_root(self._policy, self._readable, new_proc=new_proc)
        self._own_root = True

    def _pick_uid(self) -> None:
        uid = pick_uid()  # it says whether another user is granted
        self._uid = self._policy.uid or uid

    def _check_uid(self, uid: int) -> None:
        """Stays who it is where another user could not read what the worker needs."""
        policy = self._policy
        own = () if self._own_root else (policy.home, *policy.writable)
        closed = can_use(
            uid,
            readable=[*interpreter_paths(), *policy.readable],
            folders=[os.path.dirname(path) for path in own],  # noqa: PTH120
        )
        if closed is not None:
            self._uid = None
            self._record["other_uid"] = False
            self._record["other_uid_reason"] = f"another user cannot read {closed}"

    def _hand_over(self, uid: int) -> None:
        """What the worker writes to becomes its own."""
        for top in (self._policy.home, *self._policy.writable):
            for folder, _, files in os.walk(top):
                for name in (".", *files):
                    os.chown(f"{folder}/{name}", uid, uid, follow_symlinks=False)

    def _limits(self) -> None:
        policy = self._policy
        limits = {
            "file_bytes": (resource.RLIMIT_FSIZE, policy.file_bytes),
            "cpu_s": (resource.RLIMIT_CPU, policy.cpu_s),
            "open_files": (resource.RLIMIT_NOFILE, policy.open_files),
        }
        if self._uid is not None and policy.processes:
            # It counts what a user has anywhere. A little wider than the guard's limit, so that
            # the guard sees it passed and can say so.
            limits["processes"] = (resource.RLIMIT_NPROC, policy.processes + _SLACK)
        for kind, value in limits.values():
            _, hard = resource.getrlimit(kind)
            if value and (hard == resource.RLIM_INFINITY or value < hard):
                resource.setrlimit(kind, (value, value))
        for name in ("memory_bytes", "processes", "file_bytes", "scratch_bytes", "cpu_s"):
            self._record[name] = getattr(policy, name) or None
        self._record["no_core_dumps"] = True

    def _landlock(self) -> None:
        policy = self._policy
        private = ("/tmp", "/dev/shm") if self._own_root else ()
        gpus = gpu_devices() if policy.devices else []
        granted = _landlock.restrict(
            readable=self._readable,
            writable=(policy.home, *policy.writable, *private),
            devices=(*DEVICES, *gpus),
            listable=("/",) if self._own_root else (),
            name_threads=bool(gpus),
        )
        self._record |= granted

    def _log(self) -> Log | None:
        """From here on the standard streams go through a pipe into what they were."""
        if not self._policy.log_bytes:
            return None
        ours, theirs = os.pipe()
        file_fd = os.dup(1)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        os.close(theirs)
        return Log(ours, file_fd, self._policy.log_bytes)

    def _close_all_but(self, keep: tuple[int, ...]) -> None:
        low = 3
        for fd in sorted({fd for fd in keep if fd >= low}):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def enter_user_namespace() -> None:
    """An ordinary user gets the other namespaces only inside one of these.

    Raises:
        OSError: It is not granted, or the caller is root and needs none.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        raise OSError("not needed by root")
    # Tried by a child first: a namespace that grants nothing (AppArmor) cannot be left again.
    child = os.fork()
    if child == 0:
        try:
            _make_user_namespace(uid, gid)
            _linux.unshare(_linux.CLONE["mount"])
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, os.strerror(number))
    _make_user_namespace(uid, gid)


def _make_user_namespace(uid: int, gid: int) -> None:
    _linux.unshare(_linux.CLONE["user"])
    _write("/proc/self/setgroups", "deny")
    with open("/proc/self/uid_map", "w", encoding="ascii") as stream:  # noqa: PTH123
        stream.write(f"{uid} {uid} 1")
    with open("/proc/self/gid_map", "w", encoding="ascii") as stream:  # noqa: PTH123
        stream.write(f"{gid} {gid} 1")


def _or_refuse(granted: bool) -> None:
    if not granted:
        raise OSError("refused")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123
            stream.write(text)
    except OSError:
        return
