"""Programs in a sandbox, and a process that they must not get at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kopt_harness.environ import worker_environment
from kopt_harness.proc import Completed, read_status, run
from kopt_harness.sandbox import Policy
from kopt_harness.sandbox.launch import command

NAMESPACES = tuple(f"{n}_namespace" for n in ("user", "pid", "mount", "network", "ipc", "uts"))
MODES = {
    "full": (),
    "landlock": (*NAMESPACES, "other_uid"),
    "namespaces": ("landlock",),
    "bare": (*NAMESPACES, "other_uid", "landlock"),
}
"""What is switched off: nothing; all but Landlock; Landlock; everything."""

_VICTIM = """
import ctypes, sys
from kopt_harness.sandbox.launch import shield
shield()
secret = ctypes.create_string_buffer(b"expected outputs")
print(ctypes.addressof(secret), flush=True)
sys.stdin.read()
print(secret.value.decode(), flush=True)
"""


class Ran(NamedTuple):
    """A program that has run in a sandbox."""

    done: Completed
    status: dict[str, Any]
    """What the guard said."""

    @property
    def said(self) -> Any:
        """The JSON document in the last line that the program has printed."""
        assert self.done.stdout, self.done
        return json.loads(self.done.stdout.splitlines()[-1])


RunProgram = Callable[..., Ran]


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Runs Python source in a sandbox whose HOME, code folder and limits are its own."""

    def run_one(source: str, *, mode: str = "full", timeout_s: float = 30, **fields: Any) -> Ran:
        code, home = tmp_path / "code", tmp_path / "home"
        code.mkdir(exist_ok=True)
        home.mkdir(exist_ok=True)
        (code / "program.py").write_text(source)
        fields["readable"] = (*fields.get("readable", ()), str(code))
        environment = worker_environment(home) | {"PYTHONPATH": str(code)}
        status, status_fd = os.pipe()
        fields.setdefault("without", MODES[mode])
        policy = Policy(home=str(home), status_fd=status_fd, **fields)
        policy_fd = policy.to_file()
        try:
            done = run(
                command(policy_fd, "program"),
                timeout_s=timeout_s,
                cwd=home,
                env=environment,
                pass_fds=(policy_fd, status_fd, *policy.fds),
                ask_first=True,
            )
            return Ran(done, read_status(status))
        finally:
            for fd in (status, status_fd, policy_fd):
                os.close(fd)

    return run_one


class Victim(NamedTuple):
    """A process that keeps something secret in its memory, as the judge does."""

    pid: int
    address: int
    process: subprocess.Popen[str]

    def is_unharmed(self) -> bool:
        """Whether it still runs and its memory is what it was; ends it."""
        out, _ = self.process.communicate(timeout=20)
        return self.process.returncode == 0 and out == "expected outputs\n"


@pytest.fixture
def victim() -> Iterator[Victim]:
    """Such a process of the same user."""
    process = subprocess.Popen(
        [sys.executable, "-c", _VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield Victim(process.pid, int(process.stdout.readline()), process)
    with process:
        process.kill()


def processes_with(marker: str) -> list[int]:
    """Processes of this machine with a word in their command line, but for this one."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if process.pid != os.getpid() and any(marker in word for word in words):
            found.append(process.pid)
    return found


@pytest.fixture
def nothing_left() -> Callable[[str], bool]:
    """Whether processes with a marker are gone within the moment that a kill takes."""

    def gone(marker: str) -> bool:
        deadline = time.monotonic() + 10
        while processes_with(marker):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return gone
