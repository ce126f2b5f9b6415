"""Workers that are forked: what they inherit, how they end, and what happens without a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kopt_harness.environ import worker_environment
from kopt_harness.proc import Worker
from kopt_harness.worker import forkserver
from kopt_harness.worker.forkserver import PARENT, Forked, ForkServer
from kopt_harness.worker.spawn import WorkerClient, arena_file

PROGRAM = """
import json, os, random, sys, tempfile, time
import numpy
said = {
    "argv": sys.argv, "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0),
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")), "home": os.environ["HOME"],
    "extra": os.environ.get("EXTRA"), "cwd": os.getcwd(), "tmp": tempfile.gettempdir(),
    "random": [random.random(), float(numpy.random.random())], "name": __name__,
    "loaded": "kopt_harness.worker.candidate" in sys.modules,
}
os.write(int(sys.argv[2]), json.dumps(said).encode())
if sys.argv[3:] == ["sleep"]:
    time.sleep(60)
sys.exit(int(sys.argv[3]))
"""

Start = Callable[..., tuple[Forked, Callable[[], dict[str, Any]]]]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module that says what it is."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "said_by_worker.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def server(code: Path) -> Iterator[ForkServer]:
    """One that has loaded little."""
    environment = dict(os.environ) | {"PYTHONPATH": f"{code}:{os.environ.get('PYTHONPATH', '')}"}
    server = ForkServer(("json", "numpy"), environment, code / "server.log")
    yield server
    server.close()


@pytest.fixture
def start(server: ForkServer, tmp_path: Path) -> Start:
    """Forks a worker that reports over a pipe."""

    def one(*words: str, **variables: str) -> tuple[Forked, Callable[[], dict[str, Any]]]:
        near, far = os.pipe()
        environment = worker_environment(tmp_path / "home") | variables
        with (tmp_path / "log").open("ab") as log:
            worker = server.fork(
                ["said_by_worker", PARENT, str(far), *words],
                cwd=tmp_path,
                env=environment,
                pass_fds=(far,),
                log=log,
            )
        os.close(far)

        def said() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(os.read(near, 1 << 16))
            os.close(near)
            return found

        return worker, said

    return one


def test_a_forked_worker_is_as_one_just_started(start: Start, tmp_path: Path) -> None:
    """A session, an environment, descriptors and generators of its own; nothing else is open."""
    worker, said = start("3", EXTRA="yes")
    found = said()
    assert worker.wait(timeout=10) == worker.returncode == 3
    assert found["name"] == "__main__"
    assert Path(found["argv"][0]).stem == "said_by_worker"
    assert int(found["argv"][1]) == found["parent"] != os.getpid()
    assert found["session"] == found["pid"]
    assert found["extra"] == "yes"
    assert found["home"] == str(tmp_path / "home")
    assert found["cwd"] == str(tmp_path)
    assert found["tmp"] == str(tmp_path / "home" / "tmp")
    # One more is the listing's own.
    assert len(set(found["fds"]) - {0, 1, 2, int(found["argv"][2])}) == 1


def test_a_descriptor_keeps_its_number_however_high(
    server: ForkServer, start: Start, tmp_path: Path
) -> None:
    """A caller with many open files gives numbers that the server has never seen."""
    near, far = os.pipe()
    given = [os.dup(far) for _ in range(700)]
    try:
        with (tmp_path / "log").open("ab") as log:
            worker = server.fork(
                ["said_by_worker", PARENT, str(given[-1]), "0"],
                cwd=tmp_path,
                env=worker_environment(tmp_path / "home"),
                pass_fds=(given[600], given[-1]),
                log=log,
            )
        found = json.loads(os.read(near, 1 << 16))
        assert worker.wait(timeout=10) == 0
        assert {given[600], given[-1]} <= set(found["fds"])
    finally:
        for fd in (near, far, *given):
            os.close(fd)


def test_generators_differ_between_forks(start: Start) -> None:
    """Two workers that draw without a seed draw differently."""
    drawn = []
    for _ in range(2):
        worker, said = start("0")
        drawn += said()["random"]
        worker.wait(timeout=10)
    assert len(set(drawn)) == len(drawn)


def test_nothing_of_one_worker_is_seen_by_the_next(start: Start) -> None:
    """Variables of an earlier one are gone."""
    first, said_first = start("0", EXTRA="secret")
    assert said_first()["extra"] == "secret"
    first.wait(timeout=10)
    second, said = start("0")
    assert said()["extra"] is None
    second.wait(timeout=10)


def test_an_end_by_a_signal_is_told(start: Start) -> None:
    """As the exit code of a program: negative."""
    worker, said = start("sleep")
    said()
    assert not worker.has_ended()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(timeout=0.05)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=10) == -signal.SIGTERM
    assert worker.has_ended()
    with pytest.raises(ProcessLookupError):
        worker.send_signal(signal.SIGTERM)


def test_its_id_is_not_used_again_before_it_is_reaped(start: Start) -> None:
    """An ended worker stays a zombie until somebody asks."""
    worker, said = start("0")
    pid = said()["pid"]
    deadline = time.monotonic() + 10
    while not worker.has_ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert worker.pid == pid
    assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    worker.wait(timeout=10)
    assert not psutil.pid_exists(pid)


def test_workers_of_a_server_that_ends_are_seen_to_have_ended(code: Path, tmp_path: Path) -> None:
    """Those that it was still to fork, too; nothing waits for ever."""
    server = ForkServer(("json",), dict(os.environ), tmp_path / "log")
    with (tmp_path / "log").open("ab") as log:
        arguments = {"cwd": tmp_path, "env": {}, "pass_fds": (), "log": log}
        worker = server.fork(["said_by_worker", PARENT], **arguments)
    server.close()
    assert worker.has_ended()
    assert worker.wait(timeout=1) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        _ = worker.pid
    assert Worker(worker).end().returncode == -signal.SIGKILL
    assert not server.usable()


def test_a_server_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    """Also where that was killed, and its workers with it."""
    source = """
import os, sys, time
from pathlib import Path
from kopt_harness.worker.spawn import WorkerClient, arena_file
worker = WorkerClient("judge", arena_file())
print(worker.pid, flush=True)
time.sleep(60)
"""
    program = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    assert program.stdout is not None
    judge = psutil.Process(int(program.stdout.readline()))
    server = judge.parent()
    assert server is not None
    assert server.ppid() == program.pid
    program.kill()
    program.wait()
    program.stdout.close()
    _, alive = psutil.wait_procs([judge, server], timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_without_a_server_a_worker_is_started_as_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slower, and the same."""
    monkeypatch.setattr(forkserver, "fork", lambda *_, **__: None)
    fd = arena_file()
    worker = WorkerClient("judge", fd)
    try:
        assert psutil.Process(worker.pid).ppid() == os.getpid()
    finally:
        worker.close()
        os.close(fd)


def test_judges_and_candidates_have_different_servers() -> None:
    """Neither knows the other's address space."""
    fd = arena_file()
    workers = [WorkerClient(kind, fd) for kind in ("judge", "candidate", "judge")]
    try:
        judge, candidate, other = (_top(worker) for worker in workers)
        assert judge.ppid() == other.ppid()
        assert candidate.ppid() not in (judge.ppid(), os.getpid())
    finally:
        for worker in workers:
            worker.close()
        os.close(fd)


def _top(worker: WorkerClient) -> psutil.Process:
    return psutil.Process(worker._worker.pid)


def test_servers_of_other_environments_are_few(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those without a worker end when there are more than four."""
    before = set(psutil.Process().children())
    for number in range(6):
        worker = forkserver.fork(
            ("json",),
            ["said_by_worker", PARENT],
            cwd=tmp_path,
            env={"LANG": f"C{number}"} | {"PATH": os.environ["PATH"]},
            pass_fds=(),
            log=tmp_path / "log",
        )
        assert worker is not None
        worker.wait(timeout=20)
    added = set(psutil.Process().children()) - before
    assert len([p for p in added if p.is_running()]) <= 4
