"""How a sandbox ends: nothing in it outlives the program, the guard, or the orchestrator."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kopt_harness.environ import worker_environment
from kopt_harness.proc import start
from kopt_harness.sandbox import Policy
from kopt_harness.sandbox.launch import command

from .conftest import MODES, RunProgram, processes_with

_LEAVES = """
import os, subprocess, sys, time
MARKER = {marker!r}

def sleeper(**options):
    subprocess.Popen(["sh", "-c", f"sleep 60; : {{MARKER}}"], **options)

sleeper()
sleeper(start_new_session=True)
for _ in range(3):  # twice forked, each in a session of its own
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sleeper(env={{}}, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        os._exit(0)
libc = __import__("ctypes").CDLL(None)
libc.prctl(36, 0, 0, 0, 0)  # orphans go further up
if os.fork() == 0:
    os.setsid()
    sleeper()
    os._exit(0)
time.sleep(0.3)
print("started", flush=True)
{last}
"""

BOTH = pytest.mark.parametrize("mode", ["full", "landlock"])


@BOTH
@pytest.mark.parametrize(("last", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 11)", -11)])
def test_nothing_outlives_the_program(
    run_program: RunProgram,
    tmp_path: Path,
    nothing_left: Callable[[str], bool],
    mode: str,
    last: str,
    code: int,
) -> None:
    """Daemons and orphans end with it, and how it ended is passed on."""
    marker = f"kopt-left-{tmp_path.name}"
    ran = run_program(_LEAVES.format(marker=marker, last=last), mode=mode)
    assert ran.done.returncode == code
    assert ran.status["gone"]
    assert processes_with(marker) == []


@BOTH
def test_nothing_outlives_its_time(run_program: RunProgram, tmp_path: Path, mode: str) -> None:
    """The guard ends everything when it is asked to, and says so."""
    marker = f"kopt-late-{tmp_path.name}"
    source = _LEAVES.format(marker=marker, last="time.sleep(60)")
    ran = run_program(source, mode=mode, timeout_s=3)
    assert ran.done.timed_out
    assert "started" in ran.done.stdout
    assert ran.status["gone"]
    assert processes_with(marker) == []


_ORCHESTRATOR = """
import os, sys, time
from pathlib import Path
from kopt_harness.environ import worker_environment
from kopt_harness.proc import start
from kopt_harness.sandbox import Policy
from kopt_harness.sandbox.launch import command, shield

home, code, without = Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])
shield()
status, status_fd = os.pipe()
policy = Policy(home=str(home), readable=(code,), status_fd=status_fd, without=without)
policy_fd = policy.to_file()
worker = start(
    command(policy_fd, "program"), cwd=home, status_fd=status, log=home.parent / "log",
    env=worker_environment(home) | {"PYTHONPATH": code}, pass_fds=(policy_fd, status_fd),
)
print(worker.pid, flush=True)
time.sleep(60)
"""


@BOTH
@pytest.mark.parametrize("who", ["orchestrator", "guard"])
def test_everything_ends_when_what_is_above_it_is_killed(
    tmp_path: Path, nothing_left: Callable[[str], bool], mode: str, who: str
) -> None:
    """Kill -9 of the orchestrator, or of the guard, leaves no process behind."""
    marker = f"kopt-above-{who}-{tmp_path.name}"
    home, code = tmp_path / "home", tmp_path / "code"
    home.mkdir()
    code.mkdir()
    (code / "program.py").write_text(_LEAVES.format(marker=marker, last="time.sleep(60)"))
    with subprocess.Popen(
        [sys.executable, "-c", _ORCHESTRATOR, str(home), str(code), *MODES[mode]],
        stdout=subprocess.PIPE,
        text=True,
    ) as orchestrator:
        assert orchestrator.stdout is not None
        guard = int(orchestrator.stdout.readline())
        deadline = time.monotonic() + 20
        while "started" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.02)
        assert len(processes_with(marker)) >= 6
        if who == "guard":
            subprocess.run(["kill", "-9", str(guard)], check=True)
            assert nothing_left(marker)
        orchestrator.send_signal(signal.SIGKILL)
    assert nothing_left(marker)


def test_a_worker_that_is_ended_twice_says_the_same(tmp_path: Path) -> None:
    """Asking again neither waits nor kills somebody else."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "program.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    policy = Policy(home=str(home), readable=(str(tmp_path / "program.py"),), log_bytes=1000)
    policy_fd = policy.to_file()
    worker = start(
        command(policy_fd, "program"),
        cwd=home,
        env=worker_environment(home) | {"PYTHONPATH": str(tmp_path)},
        pass_fds=(policy_fd,),
        log=tmp_path / "log",
    )
    assert not worker.wait(0.01)
    ending = worker.end()
    assert ending.returncode == -signal.SIGKILL
    assert ending.survivors == ()
    assert worker.end() is ending
