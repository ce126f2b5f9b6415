"""Who started whom: both ways to find out are right where nothing is just coming or going."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from kopt_harness.sandbox.processes import children, descendants, quick_descendants

PATIENCE_S = 20.0
Below = Callable[[int], list[int]]
either = pytest.mark.parametrize("below", [descendants, quick_descendants])
PARENT = """
import os, subprocess, sys
below = subprocess.Popen(["sleep", "60"])
print(below.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def until(holds: Callable[[], bool]) -> None:
    """Waits for what another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def parent_of_a_sleeper() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with one below it, whose number is known; the upper one ends when told to."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        sleeper = int(parent.stdout.readline())
        try:
            yield parent, sleeper
        finally:
            psutil.Process(sleeper).kill()
            parent.kill()


def tell_to_end(parent: subprocess.Popen[str]) -> None:
    """Nobody waits for it yet."""
    assert parent.stdin is not None
    parent.stdin.write("end\n")
    parent.stdin.flush()


@either
def test_a_new_process_is_seen_at_once(below: Below) -> None:
    """And gone as soon as it has been waited for."""
    before = below(os.getpid())
    for _ in range(20):
        with subprocess.Popen(["sleep", "60"]) as child:
            assert child.pid in below(os.getpid())
            child.kill()
        assert below(os.getpid()) == before


@either
def test_an_orphan_is_with_who_adopted_it(below: Below) -> None:
    """Its parent was there a moment ago, and is gone."""
    with parent_of_a_sleeper() as (parent, sleeper):
        assert below(parent.pid) == [sleeper]
        tell_to_end(parent)
        parent.wait(PATIENCE_S)
        assert children(parent.pid) == []
        adopted_by = psutil.Process(sleeper).ppid()
        assert sleeper in children(adopted_by)


@either
def test_an_orphan_of_a_zombie_is_not_lost(below: Below) -> None:
    """Below the one or the other: whoever looks for what is left of a sandbox finds it."""
    with parent_of_a_sleeper() as (parent, sleeper):
        assert below(parent.pid) == [sleeper]
        tell_to_end(parent)
        zombie = psutil.Process(parent.pid)
        until(lambda: zombie.status() == psutil.STATUS_ZOMBIE)
        adopted_by = psutil.Process(sleeper).ppid()
        assert sleeper in {*below(parent.pid), *children(adopted_by)}
