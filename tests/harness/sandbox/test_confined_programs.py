"""Programs of agents that reach for kopt itself, and that leave something behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kopt_harness
import pytest
from kopt_harness.proc import run
from kopt_harness.sandbox import confine, landlock_abi

NOBODY = 65534
SECRET = "sk-a-key-of-kopt-that-nobody-may-see"
ALL = (
    "user_namespace",
    "pid_namespace",
    "ipc_namespace",
    "mount_namespace",
    "no_capabilities",
    "landlock",
)
ALONE = ALL[:4]
"""Without these no namespace is there, as in many containers."""
HARNESS = str(Path(kopt_harness.__file__).resolve().parents[1])

# Stands in for kopt: starts a program confined and waits for it. It needs no package beside the
# standard library, since the interpreter that another user can read has none.
_KOPT = """
import json, os, subprocess, sys
from kopt_harness.sandbox import confine

asked = json.loads(sys.stdin.readline())
fields = {name: tuple(value) for name, value in asked["spec"].items()}
spec_fd, status_fd = confine.Confinement(**fields).to_file(), os.memfd_create("status")
words = [word.replace("PARENT", str(os.getpid())) for word in asked["argv"]]
environment = {"PATH": os.defpath, "PYTHONPATH": os.environ["PYTHONPATH"]}
process = subprocess.Popen(
    confine.command(spec_fd, status_fd, words),
    env=environment, stdin=subprocess.DEVNULL, pass_fds=(spec_fd, status_fd),
    start_new_session=True,
)
print(process.pid, flush=True)
process.wait()
said = {"code": process.returncode, "status": confine.read_status(status_fd)}
said["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
said["affinity"] = len(os.sched_getaffinity(0))
print(json.dumps(said), flush=True)
"""

# Run with the barriers off, too, as root: each attempt aims at the stand-in for kopt, at a file of
# the test or at the program itself, and at nothing else of the machine.
_REACHES = """
import json, os, resource, subprocess, sys

parent, outside, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3][::-1]

def attempt(what):
    try:
        what()
    except (OSError, ValueError) as error:
        return "refused"
    return "done"

def sees_secret():
    for pid in {parent, os.getppid()}:
        try:
            if secret.encode() in open(f"/proc/{pid}/environ", "rb").read():
                return True
        except OSError:
            continue
    return False

def capabilities():
    out = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    lines = open("/proc/self/status").read() + out
    return sorted({line.split()[1] for line in lines.splitlines()
                   if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb"))})

said = {
    "sees_secret": sees_secret(),
    "capabilities": capabilities(),
    "environ": attempt(lambda: open(f"/proc/{parent}/environ", "rb").read()),
    "descriptors": attempt(lambda: os.listdir(f"/proc/{parent}/fd")),
    "descriptor": attempt(lambda: os.readlink(f"/proc/{parent}/fd/0")),
    "nice": attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, int(sys.argv[4]))),
    "affinity": attempt(lambda: os.sched_setaffinity(parent, {min(os.sched_getaffinity(0))})),
    "limits": attempt(lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0))),
    "mode": attempt(lambda: os.chmod(outside, 0o604)),
    "owner": attempt(lambda: os.chown(outside, os.getuid(), os.getgid())),
    "times": attempt(lambda: os.utime(outside, (1, 1))),
    "attribute": attempt(lambda: os.setxattr(outside, "user.kopt", b"x")),
    "root": attempt(lambda: os.chroot(os.getcwd())),
}
print(json.dumps(said), flush=True)
"""

_LEAVES = """
import os, sys, time

marker, how = sys.argv[1:]
for _ in range(20):
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", marker])
        os._exit(0)
    os.waitpid(child, 0)
print("ready", flush=True)
if how == "exit":
    sys.exit(3)
if how == "signal":
    os.kill(os.getpid(), 11)
time.sleep(300)
"""


class Kopt(NamedTuple):
    """A process that starts programs, and what the program can be told to do."""

    process: subprocess.Popen[str]
    launcher: int
    """Process id of the program's guard, which kopt takes for the program."""

    def line(self) -> str:
        """What was said next, by the program or by kopt."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


class Place(NamedTuple):
    """A user, an interpreter and folders that they can use."""

    uid: int | None
    python: str
    own: Path
    outside: Path

    def start(self, source: str, *words: str, without: tuple[str, ...] = ()) -> Kopt:
        """Starts kopt, and with it a program."""
        program = self.own / "program.py"
        program.write_text(source)
        own = str(self.own)
        asked = {
            "spec": {"writable": [own], "search": [self.python], "without": list(without)},
            "argv": [self.python, str(program), *words],
        }
        process = subprocess.Popen(
            [self.python, "-c", _KOPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": HARNESS, "PATH": os.defpath, "A_KEY": SECRET},
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        return Kopt(process, int(process.stdout.readline()))

    def reach(self, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a program got at, and what kopt says."""
        words = ("PARENT", str(self.outside), SECRET[::-1], str(_changed_nice()))
        kopt = self.start(_REACHES, *words, **changes)
        said, ended = json.loads(kopt.line()), json.loads(kopt.line())
        kopt.process.communicate()
        assert ended["code"] == 0
        return said, ended


@pytest.fixture(params=["caller", "nobody"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The user of the tests, and an ordinary one where that is root."""
    uid = None if request.param == "caller" else NOBODY
    if uid is not None and os.geteuid() != 0:
        pytest.skip("the caller is an ordinary user already")
    python = sys.executable if uid is None else _python_of(uid)
    # Folders of pytest are closed to other users.
    with tempfile.TemporaryDirectory(prefix="kopt-tests-") as name:
        top = Path(name)
        (top / "own").mkdir()
        outside = top / "outside.txt"
        outside.write_text("x")
        outside.chmod(0o600)
        for path in (top, top / "own", outside):
            os.chown(path, -1 if uid is None else uid, -1 if uid is None else uid)
        yield Place(uid, python, top / "own", outside)


def _python_of(uid: int) -> str:
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run([python, "-c", check], user=uid, group=uid, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("no interpreter that another user can read")


def _changed_nice() -> int:
    """A priority that a process gets only if somebody changes it."""
    return os.getpriority(os.PRIO_PROCESS, 0) + 1


def _state(path: Path) -> tuple[Any, ...]:
    found = path.stat()
    return found.st_mode, found.st_uid, found.st_mtime_ns, found.st_ctime_ns, os.listxattr(path)


needs_landlock = pytest.mark.skipif(landlock_abi() is None, reason="this kernel has no Landlock")


@needs_landlock
def test_it_sees_no_key_of_kopt(place: Place) -> None:
    """Nor what kopt has opened, with namespaces or without; with them not even how much."""
    for without in ((), ALONE):
        said, ended = place.reach(without=without)
        assert said["sees_secret"] is False
        assert said["environ"] == said["descriptor"] == "refused"
        if ended["status"].get("own_proc"):
            assert said["descriptors"] == "refused"


def test_a_program_without_barriers_would_see_the_key(place: Place) -> None:
    """The same attempts where nothing is tried: they are what they seem."""
    before = _state(place.outside)
    said, ended = place.reach(without=(*ALL, "no_new_privileges"))
    assert said["sees_secret"] is True
    reached = (
        "environ",
        "descriptors",
        "descriptor",
        "nice",
        "affinity",
        "limits",
        "mode",
        "times",
    )
    assert {name: said[name] for name in reached} == dict.fromkeys(reached, "done")
    assert ended["nice"] == _changed_nice()
    assert _state(place.outside) != before


def test_it_has_no_capability(place: Place) -> None:
    """Nor has a program that it starts, where the user is root and where it is not."""
    for without in ((), ALONE):
        said, ended = place.reach(without=without)
        assert ended["status"]["no_capabilities"] is True
        assert said["capabilities"] == ["0" * 16]
        assert said["root"] == "refused"


def test_it_changes_nothing_of_kopts_process(place: Place) -> None:
    """Priority, processors, limits: where a process namespace is granted kopt has no number."""
    processors = len(os.sched_getaffinity(0))
    said, ended = place.reach()
    if not ended["status"]["pid_namespace"]:
        pytest.skip("no process namespace here")
    for name in ("nice", "affinity", "limits"):
        assert said[name] == "refused", name
    assert ended["nice"] == os.getpriority(os.PRIO_PROCESS, 0) != _changed_nice()
    assert ended["affinity"] == processors


def test_it_changes_no_attribute_outside(place: Place) -> None:
    """Mode, owner, times, extended attributes of a file of the same user."""
    before = _state(place.outside)
    said, ended = place.reach()
    if not ended["status"]["read_only"]:
        pytest.skip("no mount namespace here")
    for name in ("mode", "owner", "times", "attribute"):
        assert said[name] == "refused", name
    assert _state(place.outside) == before


@pytest.mark.parametrize("without", [(), ALONE], ids=["namespaces", "alone"])
@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("signal", -signal.SIGSEGV)])
def test_what_it_detached_ends_with_it(
    place: Place,
    nothing_left: Callable[[str], bool],
    how: str,
    code: int,
    without: tuple[str, ...],
) -> None:
    """And it is told to kopt how the program has ended."""
    marker = _marker()
    kopt = place.start(_LEAVES, marker, how, without=without)
    assert kopt.line() == "ready"
    assert json.loads(kopt.line())["code"] == code
    kopt.process.communicate()
    assert nothing_left(marker)


@pytest.mark.parametrize("without", [(), ALONE], ids=["namespaces", "alone"])
@pytest.mark.parametrize("whom", ["kopt", "session", "guard asked"])
def test_what_it_detached_ends_when_it_is_killed(
    place: Place, nothing_left: Callable[[str], bool], whom: str, without: tuple[str, ...]
) -> None:
    """Whether kopt is killed, or kills the session of what it started, or asks for the end."""
    marker = _marker()
    kopt = place.start(_LEAVES, marker, "stay", without=without)
    assert kopt.line() == "ready"
    if whom == "kopt":
        kopt.process.kill()
    elif whom == "session":
        os.killpg(kopt.launcher, signal.SIGKILL)
    else:
        os.kill(kopt.launcher, signal.SIGTERM)
    kopt.process.communicate()
    assert nothing_left(marker)


def test_what_it_detached_ends_at_the_end_of_its_time(
    tmp_path: Path, nothing_left: Callable[[str], bool]
) -> None:
    """As kopt runs a program; what it had printed is there."""
    marker = _marker()
    program = tmp_path / "program.py"
    program.write_text(_LEAVES)
    spec_fd = confine.Confinement(writable=(str(tmp_path),)).to_file()
    status_fd = os.memfd_create("status")
    started = time.monotonic()
    done = run(
        confine.command(spec_fd, status_fd, [sys.executable, str(program), marker, "stay"]),
        timeout_s=8,
        env={"PATH": os.defpath, "PYTHONPATH": HARNESS},
        pass_fds=(spec_fd, status_fd),
        ask_first=True,
    )
    for fd in (spec_fd, status_fd):
        os.close(fd)
    assert done.timed_out
    assert done.stdout == "ready\n"
    assert time.monotonic() - started < 30
    assert nothing_left(marker)


def _marker() -> str:
    """Seconds to sleep that nobody else sleeps."""
    return f"300.{uuid.uuid4().int}"
