"""What a sandboxed program may use: memory, processes, files, processor time, log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.environ import worker_environment
from kopt_harness.proc import start
from kopt_harness.sandbox import Policy
from kopt_harness.sandbox.launch import command

from .conftest import MODES, RunProgram

_MB = 1 << 20
BOTH = pytest.mark.parametrize("mode", ["full", "landlock"])
_ONE = "hog = bytearray()\nwhile True: hog += bytes(1 << 23)\n"
_MANY = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        own = b"x" * (40 << 20)
        time.sleep(30)
time.sleep(30)
"""
_SHARED = """
import mmap, os, time
shared = mmap.mmap(-1, 400 << 20)
for page in range(0, len(shared), 4096): shared[page] = 1
time.sleep(30)
"""


@BOTH
@pytest.mark.parametrize("source", [_ONE, _MANY, _SHARED], ids=["one", "many", "shared"])
def test_a_memory_bomb_is_ended(run_program: RunProgram, mode: str, source: str) -> None:
    """All processes count together, shared memory too; the guard says which limit it was."""
    ran = run_program(source, mode=mode, memory_bytes=200 * _MB)
    assert ran.status["limit"] == "memory-limit"
    assert "the limit is 0.2 GB" in ran.status["detail"]
    assert ran.status["gone"]
    assert ran.done.returncode < 0


def test_memory_that_is_lent_is_not_charged(run_program: RunProgram) -> None:
    """The arena belongs to the judge, however many processes have mapped it."""
    fd = os.memfd_create("arena")
    os.ftruncate(fd, 300 * _MB)
    source = f"""
import mmap, os, time
arena = mmap.mmap({fd}, {300 * _MB})
for page in range(0, len(arena), 4096): arena[page] = 1
time.sleep(0.3)
print('"done"')
"""
    try:
        os.set_inheritable(fd, True)
        ran = run_program(source, memory_bytes=200 * _MB, fds=(fd,), shared_fd=fd)
    finally:
        os.close(fd)
    assert ran.said == "done"


def test_a_fork_bomb_is_ended(run_program: RunProgram) -> None:
    """The user id's limit holds until the guard has seen it."""
    source = "import os, sys\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    ran = run_program(source, processes=60, timeout_s=120)
    assert ran.status["limit"] == "process-limit"
    assert "the limit is 60" in ran.status["detail"]
    assert ran.status["gone"]


@pytest.mark.parametrize(
    "source",
    [
        "import os, time\nfor _ in range(90):\n    if os.fork() == 0: break\ntime.sleep(30)",
        "import threading, time\n"
        "for _ in range(90): threading.Thread(target=time.sleep, args=(30,)).start()",
    ],
    ids=["processes", "threads"],
)
def test_too_many_processes_or_threads_are_seen_without_another_uid(
    run_program: RunProgram, source: str
) -> None:
    """Where the kernel cannot count for this sandbox alone, the guard does."""
    ran = run_program(source, mode="landlock", processes=60)
    assert ran.status["limit"] == "process-limit"
    assert ran.status["gone"]


@BOTH
def test_a_huge_file_is_refused(run_program: RunProgram, mode: str) -> None:
    """Ten gigabytes are neither written nor reserved."""
    source = """
import json, os
tried = []
for act in (lambda fd: os.ftruncate(fd, 10 << 30), lambda fd: os.posix_fallocate(fd, 0, 10 << 30),
            lambda fd: [os.write(fd, bytes(1 << 20)) for _ in range(100)]):
    fd = os.open(os.path.expanduser("~/huge"), os.O_RDWR | os.O_CREAT)
    try:
        act(fd)
        tried.append("done")
    except OSError as error:
        tried.append(error.strerror)
print(json.dumps(tried))
"""
    ran = run_program(source, mode=mode, file_bytes=20 * _MB)
    assert ran.said == ["File too large"] * 3


def test_many_files_are_refused_too(run_program: RunProgram) -> None:
    """HOME, /tmp and /dev/shm have one size together, and none of it is on the disk."""
    source = """
import json, os
wrote = 0
try:
    for number in range(100):
        for folder in (os.path.expanduser("~"), "/tmp", "/dev/shm"):
            with open(f"{folder}/{number}", "wb") as stream:
                wrote += stream.write(bytes(1 << 20))
except OSError as error:
    print(json.dumps([error.strerror, wrote >> 20]))
"""
    said = run_program(source, scratch_bytes=32 * _MB).said
    assert said[0] == "No space left on device"
    assert 20 <= said[1] <= 32


def test_a_disk_that_is_filled_ends_the_program(run_program: RunProgram, tmp_path: Path) -> None:
    """A folder whose contents stay is on a real disk, which has other users."""
    kept = tmp_path / "kept"
    kept.mkdir()
    floor = {"disk_floor_bytes": 1 << 60}  # no disk has as much
    ran = run_program("import time; time.sleep(30)", writable=(str(kept),), **floor)
    assert ran.status["limit"] == "disk-limit"


@BOTH
def test_processor_time_ends(run_program: RunProgram, mode: str) -> None:
    """An endless loop that nobody waits for."""
    ran = run_program("while True: pass", mode=mode, cpu_s=1)
    assert ran.done.returncode == -9
    assert ran.done.seconds < 20


def test_open_files_end(run_program: RunProgram) -> None:
    """Descriptors are limited."""
    source = "import os, json\nn = 0\ntry:\n    while True: os.dup(0); n += 1\n"
    source += "except OSError: print(n)\n"
    assert run_program(source, open_files=64).said < 64


@BOTH
def test_a_flooded_log_keeps_its_end(tmp_path: Path, mode: str) -> None:
    """What is printed goes through the guard into a file that stays small."""
    home = tmp_path / "home"
    home.mkdir()
    source = "import sys\nfor n in range(200000): print('line', n)\nprint('last words')\n"
    (tmp_path / "program.py").write_text(source)
    policy = Policy(
        home=str(home),
        readable=(str(tmp_path / "program.py"),),
        log_bytes=100_000,
        without=MODES[mode],
    )
    policy_fd = policy.to_file()
    variables: dict[str, Any] = worker_environment(home) | {"PYTHONPATH": str(tmp_path)}
    del variables["PYTHONUNBUFFERED"]
    worker = start(
        command(policy_fd, "program"),
        cwd=home,
        env=variables,
        pass_fds=(policy_fd,),
        log=tmp_path / "log",
    )
    assert worker.wait(30)
    assert worker.end().returncode == 0
    text = (tmp_path / "log").read_text()
    assert len(text) <= 100_100
    assert text.endswith("line 199999\nlast words\n")
    assert "the beginning is left out" in text
