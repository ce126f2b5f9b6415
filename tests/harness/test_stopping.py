"""What counts as stopped, and the processor time of processes that are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from kopt_harness.sandbox.processes import is_stopped, processor_ns

HEADLESS = """
import ctypes, threading
def work():
    print("running", flush=True)
    while True:
        pass
threading.Thread(target=work, daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""Its first thread ends, and another one goes on."""


@pytest.fixture
def headless() -> Iterator[int]:
    """The id of such a process."""
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        deadline = time.monotonic() + 10
        while _state(process.pid) != "Z" and time.monotonic() < deadline:
            time.sleep(0.001)
        yield process.pid
        process.kill()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()[0]


def test_a_process_whose_first_thread_has_ended_may_run(headless: int) -> None:
    """Its state reads as that of a zombie; stopped it is when every thread is."""
    assert _state(headless) == "Z"
    assert not is_stopped(headless)
    os.kill(headless, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while not is_stopped(headless) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert is_stopped(headless)


def test_processor_time_is_that_of_all_threads(headless: int) -> None:
    """It grows while one runs, and not while all are stopped."""
    first = processor_ns(headless)
    assert first is not None
    deadline = time.monotonic() + 10
    while (processor_ns(headless) or 0) < first + 1_000_000 and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(headless, signal.SIGSTOP)
    while not is_stopped(headless) and time.monotonic() < deadline:
        time.sleep(0.001)
    stopped = processor_ns(headless)
    assert stopped is not None
    assert stopped >= first + 1_000_000
    time.sleep(0.05)
    assert processor_ns(headless) == stopped


def test_what_is_not_there_is_stopped_and_has_no_time() -> None:
    """A process that has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert is_stopped(process.pid)
    assert processor_ns(process.pid) is None
