"""What a hostile program in a sandbox gets at: files, memory, processes, network."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import RunProgram, Victim

_TRY = """
import ctypes, json, os, signal, socket
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
result = {}

def attempt(name):
    def decorate(function):
        try:
            got = function()
            result[name] = True if got is None else got
        except OSError as error:
            result[name] = False
    return decorate

def check(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), "")
    return value
"""

_FILES = """
project = Path(PROJECT)
reference = project / "kernels" / "op" / "reference.py"

@attempt("reads reference")
def _(): reference.read_text()

@attempt("lists kernels")
def _(): os.listdir(project / "kernels")

@attempt("reads through ..")
def _(): (project / "harness" / ".." / "kernels" / "op" / "reference.py").read_text()

@attempt("reads through a link")
def _():
    os.symlink(reference, Path.home() / "link")
    (Path.home() / "link").read_text()

@attempt("reads through a hard link")
def _():
    os.link(reference, Path.home() / "hard")
    (Path.home() / "hard").read_text()

@attempt("reads through /proc/1/root")
def _(): Path("/proc/1/root", *reference.parts[1:]).read_text()

@attempt("reads evidence")
def _(): (project / "artifacts" / "summary.json").read_text()

@attempt("writes evidence")
def _(): (project / "artifacts" / "forged.json").write_text("{}")

@attempt("reads history")
def _(): os.listdir(project / ".git")

@attempt("reads harness")
def _(): (project / "harness" / "judge.py").read_text()

@attempt("writes harness")
def _(): (project / "harness" / "judge.py").write_text("passed = True")

@attempt("plants a module")
def _(): (project / "harness" / "torch.py").write_text("")

@attempt("replaces harness")
def _(): os.rename(project / "harness", project / "old")

@attempt("writes beside harness")
def _(): (project / "sitecustomize.py").write_text("")

@attempt("truncates harness")
def _(): os.truncate(project / "harness" / "judge.py", 0)

@attempt("makes a device")
def _(): os.mknod(Path.home() / "disk", 0o60600, os.makedev(8, 0))

@attempt("mounts")
def _(): check(libc.mount(b"none", str(Path.home()).encode(), b"tmpfs", 0, None))

@attempt("mounts as root of a namespace")
def _():
    if os.fork() == 0:
        refused = libc.unshare(0x10020000) or libc.mount(b"none", b"/usr", b"tmpfs", 0, None)
        os._exit(1 if refused else 0)
    if os.wait()[1]:
        raise OSError

@attempt("writes home")
def _(): (Path.home() / "own").write_text("x")

@attempt("runs a program")
def _(): assert os.system("cat /dev/null") == 0

print(json.dumps(result))
"""

_ALLOWED = {"reads harness", "writes home", "runs a program"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of its own, all of it on the search path of the sandboxed program."""
    files = {
        "kernels/op/reference.py": "answer = 42",
        "artifacts/summary.json": "{}",
        ".git/HEAD": "ref: refs/heads/main",
        "harness/judge.py": "passed = False",
        "README.md": "read me",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


@pytest.mark.parametrize("mode", ["full", "landlock", "namespaces"])
def test_only_what_is_granted_is_read_and_only_home_is_written(
    run_program: RunProgram, project: Path, mode: str
) -> None:
    """Definitions and evidence stay hidden, whichever way they are asked for."""
    secret = ("kernels", "artifacts", ".git")
    before = {p: p.read_text() for p in project.rglob("*") if p.is_file()}
    ran = run_program(
        _TRY + f"PROJECT = {str(project)!r}\n" + _FILES,
        mode=mode,
        search=(str(project),),
        protected=tuple(str(project / name) for name in secret),
    )
    # Only Landlock refuses mounts in a namespace of its own, which show nothing new.
    allowed = _ALLOWED | ({"mounts as root of a namespace"} if mode == "namespaces" else set())
    assert {name for name, done in ran.said.items() if done} == allowed
    assert {p: p.read_text() for p in project.rglob("*") if p.is_file()} == before


_MEMORY = """
libc.ptrace.restype = ctypes.c_long

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def peek(call, text):
    mine = ctypes.create_string_buffer(text, 16)
    local, remote = Vector(ctypes.addressof(mine), 16), Vector(ADDRESS, 16)
    check(call(PID, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))

@attempt("lists its own descriptors")
def _(): return sorted(int(n) for n in os.listdir("/proc/self/fd"))

@attempt("reads memory")
def _(): peek(libc.process_vm_readv, b"")

@attempt("writes memory")
def _(): peek(libc.process_vm_writev, b"wrong outputs")

@attempt("opens mem")
def _():
    with open(f"/proc/{PID}/mem", "r+b", buffering=0) as memory:
        memory.seek(ADDRESS)
        memory.write(b"wrong outputs")

@attempt("opens mem of process 1")
def _(): open("/proc/1/mem", "rb").close()

@attempt("opens mem of the parent")
def _(): open(f"/proc/{os.getppid()}/mem", "rb").close()

@attempt("reads maps")
def _(): Path(f"/proc/{PID}/maps").read_text()

@attempt("reads environment")
def _(): Path(f"/proc/{PID}/environ").read_bytes()

@attempt("takes descriptors")
def _(): os.open(f"/proc/{PID}/fd/0", os.O_RDONLY)

@attempt("copies descriptors")
def _(): check(libc.syscall(438, os.pidfd_open(PID), 0, 0))

@attempt("traces")
def _(): check(libc.ptrace(16, PID, None, None))

@attempt("seizes")
def _(): check(libc.ptrace(0x4206, PID, None, None))

@attempt("kills")
def _(): os.kill(PID, signal.SIGKILL)

@attempt("kills the parent")
def _():
    os.kill(os.getppid(), signal.SIGKILL)
    if os.getpid() == 2:  # the kernel drops it: process 1 of a namespace
        raise OSError

@attempt("stops everybody")
def _():
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    os.kill(PID, signal.SIGSTOP)

@attempt("reads its own memory")
def _(): Path("/proc/self/maps").read_text()

print(json.dumps(result))
"""


@pytest.mark.parametrize("mode", ["full", "landlock", "namespaces"])
def test_another_process_is_neither_read_nor_traced_nor_killed(
    run_program: RunProgram, victim: Victim, mode: str
) -> None:
    """The judge's memory is out of reach even for the same user with Landlock alone."""
    program = _TRY + f"PID, ADDRESS = {victim.pid}, {victim.address}\n" + _MEMORY
    said = run_program(program, mode=mode).said
    # The standard streams, and the one that lists.
    assert said.pop("lists its own descriptors") == [0, 1, 2, 3]
    assert {name for name, done in said.items() if done} == {"reads its own memory"}
    assert victim.is_unharmed()


def test_without_any_barrier_the_same_attacks_succeed(
    run_program: RunProgram, victim: Victim
) -> None:
    """The attacks are real: with everything switched off the process dies."""
    harmless = _MEMORY.replace("os.kill(os.getppid(), signal.SIGKILL)", "")
    program = _TRY + f"PID, ADDRESS = {victim.pid}, {victim.address}\n" + harmless
    said = run_program(program, mode="bare").said
    assert said["kills"]
    assert not victim.is_unharmed()


_NETWORK = """
@attempt("connects to a port")
def _(): socket.create_connection(("127.0.0.1", PORT), timeout=5)

@attempt("listens on a port")
def _():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

@attempt("connects to an abstract socket")
def _(): socket.socket(socket.AF_UNIX).connect(ABSTRACT)

@attempt("connects to a socket file")
def _(): socket.socket(socket.AF_UNIX).connect(FILE)

@attempt("sends a datagram")
def _(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))

print(json.dumps(result))
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Somebody listens on a port, an abstract socket and a socket file."""
    with (
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as file,
    ):
        names = {"ABSTRACT": f"\0kopt-test-{os.getpid()}", "FILE": str(tmp_path / "socket")}
        abstract.bind(names["ABSTRACT"])
        file.bind(names["FILE"])
        for one in (abstract, file):
            one.listen()
        yield {"PORT": port.getsockname()[1], **names}


@pytest.mark.parametrize(
    ("mode", "open_ways"),
    [
        ("full", set()),
        ("namespaces", {"listens on a port"}),
        # Of socket files and datagrams Landlock knows nothing.
        ("landlock", {"connects to a socket file", "sends a datagram"}),
    ],
)
def test_nobody_outside_is_reached_over_a_socket(
    run_program: RunProgram, servers: dict[str, Any], mode: str, open_ways: set[str]
) -> None:
    """No connection leaves the sandbox, and no server is open in it."""
    assigned = "".join(f"{name} = {value!r}\n" for name, value in servers.items())
    said = run_program(_TRY + assigned + _NETWORK, mode=mode).said
    assert {name for name, done in said.items() if done} == open_ways


def test_it_has_no_privileges_and_gains_none(run_program: RunProgram) -> None:
    """Another user, no capability, none to be had from a set-user-id program."""
    source = """
import json, os
from pathlib import Path
fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")
print(json.dumps([os.getuid(), os.getgroups(), {n: int(fields[n], 16) for n in names}]))
"""
    uid, groups, status = run_program(source).said
    if os.geteuid() == 0:
        assert 20000 <= uid < 60000
        assert groups in ([], [uid])
        assert status.pop("CapBnd") == 0
    status.pop("CapBnd", None)
    assert status.pop("NoNewPrivs") == 1
    assert not any(status.values())


def test_what_it_sees_of_the_system_is_an_allow_list(
    run_program: RunProgram, tmp_path: Path
) -> None:
    """No other folder has a name; private memory replaces /tmp, /dev/shm and HOME."""
    (tmp_path / "home" / "cache").mkdir(parents=True)
    (tmp_path / "private.txt").write_text("x")
    source = """
import json, os
for name in ("/tmp/a", "/dev/shm/a", os.path.expanduser("~/cache/a")):
    open(name, "w").close()
seen = [os.listdir(name) for name in ("/tmp", "/dev/shm", os.environ["PARENT"])]
print(json.dumps([*seen, os.listdir("/"), os.listdir("/dev"), os.listdir("/proc")]))
""".replace("os.environ['PARENT']", repr(str(tmp_path))).replace(
        'os.environ["PARENT"]', repr(str(tmp_path))
    )
    tmp, shm, parent, root, devices, processes = run_program(source).said
    assert "a" in tmp
    assert shm == ["a"]
    assert sorted(parent) == ["code", "home"]
    assert {"mnt", "var", "srv", "media", "boot"}.isdisjoint(root)
    assert not [name for name in devices if name.startswith(("vd", "sd", "nvme", "mem", "kmsg"))]
    assert sum(name.isdigit() for name in processes) == 2
    assert not (tmp_path / "home" / "cache" / "a").exists()
