"""Runs a program that may use the network and write in its own folders, and nothing else.

``python -P -m kopt_harness.sandbox.confine SPEC_FD STATUS_FD PARENT_PID PROGRAM [ARGUMENT ...]``

For programs that are not candidates: they need a network and files that outlive them, so they
keep the user and the file system that they were started with. What holds is of two kinds. Landlock,
inherited by all that the program starts: reading is limited to the system, the interpreter and
what is named, writing to the folders that are named. And, where the kernel grants them, a process
namespace, in which no process outside has a number, and a mount namespace, in which all else is
read-only. No capability is left, whoever the user is.

Two guards stay above the program, as above a candidate (``_guard``). They end whatever it has
started when it ends, when they are told to, or when who has started them is gone. Each mechanism
is recorded as granted, or with the reason why it was not; the program runs all the same.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _landlock
from ._enter import die_with_parent, enter_user_namespace
from ._guard import guard, oversee
from ._identity import drop_capabilities, refuse_new_privileges, set_dumpable
from ._linux import CLONE, prctl, unshare
from ._root import enter_read_only
from .paths import DEVICES, readable_paths
from .policy import Policy
from .processes import rename

__all__ = ["Confinement", "command", "read_status"]

_TERMINAL = ("/dev/tty", "/dev/ptmx", "/dev/pts")
"""Programs ask for one although they run without."""
_MOST_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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
    without: tuple[str, ...] = ()
    """Mechanisms that are not tried. For tests: nothing in kopt sets it."""

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
    os.close(spec_fd)
    die_with_parent(parent_pid, signal.SIGTERM)
    record = _Entry(spec).enter()
    os.write(status_fd, json.dumps(record).encode())
    os.close(status_fd)
    os.chdir(spec.writable[0])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # this interpreter ignores them
    argv = sys.argv[4:]
    os.execve(argv[0], argv, _environment(os.environ))


class _Entry:
    """One process on its way in; each fork takes along what is known by then."""

    def __init__(self, spec: Confinement) -> None:
        self._spec = spec
        self._record: dict[str, Any] = {}

    def enter(self) -> dict[str, Any]:
        """Goes on in the process that is to become the program; its two guards stay in here.

        Returns:
            What was granted: one entry a mechanism, with a reason beside each that was not.
        """
        self._note("user_namespace", enter_user_namespace)
        self._unshare("pid")
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        near, far = socket.socketpair()
        inner = os.fork()
        if inner:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it ends as the program has ended
            _become_guard(near.fileno(), "kopt guard of an agent")
            oversee(inner, near.fileno(), -1, None)
        near.close()
        self._inner()
        program = os.fork()
        if program:
            _become_guard(far.fileno(), "kopt init of an agent")
            guard(program, far.fileno(), None)
        far.close()
        self._program()
        return self._record

    def _inner(self) -> None:
        """Who ends this process, and everything that needs privileges."""
        set_dumpable(dumpable=False)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if self._record["pid_namespace"]:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        else:
            # A kill of the other guard's session must leave one that ends what is detached.
            os.setsid()
        self._unshare("ipc")
        self._unshare("mount")
        self._note("read_only", self._enter_read_only)

    def _program(self) -> None:
        """What is left of privileges is given up; then the allow-list of files."""
        os.setsid()
        self._note("no_capabilities", lambda: drop_capabilities(None))
        self._note("no_new_privileges", refuse_new_privileges)
        set_dumpable(dumpable=True)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._note("landlock", self._landlock)

    def _unshare(self, name: str) -> None:
        self._note(f"{name}_namespace", lambda: unshare(CLONE[name]))

    def _enter_read_only(self) -> None:
        if not self._record["mount_namespace"]:
            raise OSError("it needs a mount namespace")
        new_proc = bool(self._record["pid_namespace"])
        self._record |= enter_read_only(self._spec.writable, new_proc=new_proc)

    def _landlock(self) -> None:
        spec = self._spec
        policy = Policy(
            home=spec.writable[0],
            readable=spec.readable,
            search=spec.search,
            protected=spec.protected,
        )
        self._record |= _landlock.restrict(
            readable=readable_paths(policy),
            writable=spec.writable,
            devices=(*DEVICES, *_TERMINAL),
            tcp=True,
        )

    def _note(self, name: str, attempt: Callable[[], object]) -> None:
        """Tries a mechanism, and writes down whether it was granted, or why not."""
        self._record[name] = False
        if name in self._spec.without:
            self._record[f"{name}_reason"] = "switched off by a test"
            return
        try:
            attempt()
        except OSError as error:
            self._record[f"{name}_reason"] = error.strerror or str(error)
        else:
            self._record[name] = True


def _become_guard(fd: int, title: str) -> None:
    """Lets go of all that the program alone is to hold; errors of its own are still said."""
    low = 3
    os.closerange(low, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    os.close(null)
    os.chdir("/")
    rename(title)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what only this module's interpreter needed."""
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    main()
