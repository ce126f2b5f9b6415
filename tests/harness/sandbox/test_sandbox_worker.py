"""Candidate and builder processes are in a sandbox, and say how it ended them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kopt_harness.build import build_in_worker
from kopt_harness.build._process import Ran, run_builder_process
from kopt_harness.build._store import BuildStore
from kopt_harness.build.cpp import BUILDER
from kopt_harness.build.protocol import BuildRequest
from kopt_harness.schema import BuildSpec, Solution, SourceFile
from kopt_harness.worker import spawn
from kopt_harness.worker.spawn import WorkerClient, WorkerFailedError, arena_file

_SERVER = """
import sys
from kopt_harness.sandbox import in_force
from kopt_harness.worker.serve import serve
from kopt_harness.worker.wire import Channel

def hog(request):
    held = bytearray()
    while True:
        held += bytes(1 << 23)

def spawn(request):
    import os, time
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(30)
    time.sleep(30)

def record(request):
    return {"record": in_force()}

serve(Channel.from_fd(int(sys.argv[2])), {"hog": hog, "spawn": spawn, "record": record})
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerClient]:
    """A candidate process with small limits that runs a server of this test."""
    (tmp_path / "hostile_server.py").write_text(_SERVER)
    monkeypatch.setitem(spawn.MODULES, "candidate", "hostile_server")
    fd = arena_file()
    worker = WorkerClient(
        "candidate",
        fd,
        environment={"PYTHONPATH": str(tmp_path)},
        readable=(tmp_path,),
        limits={"memory_bytes": 300 << 20, "processes": 60},
    )
    yield worker
    worker.close()
    os.close(fd)


def test_every_result_can_say_what_was_in_force(client: WorkerClient) -> None:
    """One entry a mechanism; what was not granted has its reason beside it."""
    record = client.request("record", timeout_s=30)["record"]
    for name in (
        *("user_namespace", "pid_namespace", "mount_namespace", "network_namespace"),
        *("ipc_namespace", "uts_namespace", "own_root", "other_uid", "no_capabilities"),
        *("no_new_privileges", "landlock", "dies_with_parent", "no_core_dumps"),
    ):
        assert isinstance(record[name], bool)
        assert record[name] or record[f"{name}_reason"]
    assert (record["memory_bytes"], record["processes"]) == (300 << 20, 60)


def test_the_process_is_told_from_its_guards(client: WorkerClient) -> None:
    """What is watched for activity is the worker and what it has started."""
    client.request("record", timeout_s=30)
    assert client.processes() == [client.pid]
    assert "hostile_server" in psutil.Process(client.pid).cmdline()
    above = [process.cmdline()[0] for process in psutil.Process(client.pid).parents()[:2]]
    assert above == ["kopt init of the candidate", "kopt guard of the candidate"]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ("hog", "memory-limit", "GB of memory; the limit is 0.3 GB"),
        ("spawn", "process-limit", "processes and threads; the limit is 60"),
    ],
)
def test_a_passed_limit_is_told_from_a_crash(
    client: WorkerClient, request_: str, code: str, words: str
) -> None:
    """The code and a plain sentence come from the guard, not from the candidate."""
    with pytest.raises(WorkerFailedError, match=words) as caught:
        client.request(request_, timeout_s=30)
    assert (caught.value.kind, caught.value.code) == ("crash", code)
    assert client.close().survivors == ()


def _solution(source: str, **spec: object) -> Solution:
    return Solution(
        name="hostile",
        definition="scale",
        author="tests",
        spec=BuildSpec(
            **{"language": "cpp", "entry_point": "a.cpp::run", **spec},
        ),
        sources=(
            SourceFile(
                path=str(spec.get("entry_point", "a.cpp::run")).split("::")[0], content=source
            ),
        ),
    )


def _compile(solution: Solution, cache: Path, **limits: int) -> Ran:
    request = BuildRequest(solution=solution, target="cpu", kind="cpu", arch=None)
    with BuildStore(cache).stage() as staging:
        staging.write_sources(request)
        plan = BUILDER.plan(request)
        return run_builder_process(request, plan, staging, timeout_s=60, limits=limits)


def test_an_endless_include_is_a_failed_build(tmp_path: Path) -> None:
    """The compiler is ended before the machine is short of memory, and the log says so."""
    endless = _solution('#include "/dev/zero"\n')
    ran = _compile(endless, tmp_path, memory_bytes=400 << 20)
    assert not ran.outcome.ok
    assert not ran.timed_out
    assert "the builder process was ended: it held" in ran.outcome.log


def test_a_build_includes_nothing_of_the_project(tmp_path: Path, checkout: Path) -> None:
    """Sources that include a definition do not find it."""
    (reference,) = (checkout / "kernels").glob("gdn_decode*/reference.py")
    ran = _compile(_solution(f'#include "{reference}"\n'), tmp_path)
    assert not ran.outcome.ok
    assert "No such file" in ran.outcome.log


_PLANTS = """
import os, socket
from pathlib import Path

def run(x, s, y):
    pass

def precompile(axes):
    outside = Path(OUTSIDE)
    for act in (lambda: outside.write_text("changed"), lambda: outside.read_text(),
                lambda: os.mkfifo("pipe"), lambda: os.symlink(outside, "result.json"),
                lambda: os.symlink("/etc", "folder"), lambda: os.chmod("src", 0),
                lambda: socket.create_connection(("127.0.0.1", 1))):
        try:
            act()
            print("done")
        except ConnectionRefusedError:
            print("reached the network")
        except OSError as error:
            print("refused")
"""


def test_a_builder_writes_to_its_folder_and_leaves_only_plain_files(tmp_path: Path) -> None:
    """A link in a build would lead the orchestrator, who writes beside it, to another file."""
    outside = tmp_path / "outside.json"
    outside.write_text("as it was")
    source = f"OUTSIDE = {str(outside)!r}\n{_PLANTS}"
    solution = _solution(source, language="python", entry_point="a.py::run")
    result = build_in_worker(solution, "h200", tmp_path / "cache", axes={"N": 5})
    assert result.ok, result.log
    assert result.log.split() == ["refused", "refused", "done", "done", "done", "done", "refused"]
    assert outside.read_text() == "as it was"
    built = list(Path(result.path).rglob("*"))
    assert not [path for path in built if not (path.is_dir() or path.is_file())]
    assert not [path for path in built if path.is_symlink()]
    assert not [path for path in built if path.stat().st_uid != os.geteuid()]
    assert (Path(result.path) / "src" / "a.py").read_text() == source
