"""Who waits for a device gets it in its turn, whatever happens to the others."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from kopt_harness.errors import InfraError
from kopt_harness.lease import device_lease
from kopt_harness.turns import PLACES

_TAKER = """
import sys, time
from pathlib import Path
from kopt_harness.lease import device_lease

folder, name, hold_s, times = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(times):
    with device_lease("GPU-1", timeout_s=60, folder=folder / "leases"):
        with (folder / "order").open("a") as order:
            order.write(name + "\\n")
        time.sleep(hold_s)
"""


class Taker:
    """A process that takes the device when it is told to."""

    def __init__(self, folder: Path, name: str, *, hold_s: float, times: int) -> None:
        self._folder = folder
        argv = [sys.executable, "-c", _TAKER, str(folder), name, str(hold_s), str(times)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def go(self) -> None:
        """Tells it to, when it is ready."""
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        assert self.process.stdout.readline() == "ready\n"
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def queue(self) -> None:
        """The same, and returns when it stands in the row."""
        self.go()
        _until(lambda: len(self.holds()) == 1 and ".wait-" in self.holds()[0])

    def holds(self) -> list[str]:
        """What the kernel says it has locked: places of the row, or the device."""
        files = {path.stat().st_ino: path for path in (self._folder / "leases").iterdir()}
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        mine = [row for row in rows if "FLOCK" in row and str(self.process.pid) in row]
        return [files[inode].name for row in mine if (inode := _inode(row)) in files]


def _inode(row: list[str]) -> int:
    (place,) = (word for word in row if word.count(":") == 2)
    return int(place.rpartition(":")[2])


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@pytest.fixture
def taker(tmp_path: Path) -> Iterator[Callable[..., Taker]]:
    """Makes processes that take the device; none outlives the test."""
    (tmp_path / "leases").mkdir()
    made: list[Taker] = []

    def make(name: str, *, hold_s: float = 0.0, times: int = 1) -> Taker:
        made.append(Taker(tmp_path, name, hold_s=hold_s, times=times))
        return made[-1]

    yield make
    for each in made:
        with each.process:
            each.process.kill()


@pytest.fixture
def leases(tmp_path: Path) -> Path:
    """Where the device's lock is."""
    return tmp_path / "leases"


def _order(folder: Path) -> list[str]:
    path = folder / "order"
    return path.read_text().split() if path.exists() else []


def test_who_takes_it_again_at_once_starves_nobody(taker, tmp_path: Path) -> None:
    """Two loops that let go only to take again come to their turns one after the other."""
    loops = [taker(name, hold_s=0.03, times=20) for name in "ab"]
    for each in loops:
        each.go()
    assert [each.process.wait(60) for each in loops] == [0, 0]
    order = _order(tmp_path)
    assert Counter(order) == {"a": 20, "b": 20}
    begin = max(order.index(name) for name in "ab")
    left = max(order[::-1].index(name) for name in "ab")
    both = order[begin : len(order) - left]
    changes = sum(one != two for one, two in pairwise(both))
    assert len(both) >= 20, order
    assert changes >= 0.8 * (len(both) - 1), order


def test_waiters_come_in_the_order_in_which_they_asked(taker, leases: Path, tmp_path: Path) -> None:
    """Three of them, and the one who had it, asking again, is the last."""
    waiters = [taker(name, hold_s=0.05) for name in ("first", "second", "third")]
    with device_lease("GPU-1", folder=leases):
        for each in waiters:
            each.queue()
    with device_lease("GPU-1", timeout_s=30, folder=leases):
        assert _order(tmp_path) == ["first", "second", "third"]


def test_a_killed_waiter_leaves_its_place(taker, leases: Path, tmp_path: Path) -> None:
    """The one behind it moves up; the row is as if it had never come."""
    killed, second = taker("killed"), taker("second", hold_s=0.05)
    with device_lease("GPU-1", folder=leases):
        killed.queue()
        second.queue()
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(30)
        _until(lambda: second.holds() == ["GPU-1.wait-00"])
    assert second.process.wait(30) == 0
    assert _order(tmp_path) == ["second"]


def test_a_killed_holder_leaves_it_to_the_first_in_the_row(
    taker, leases: Path, tmp_path: Path
) -> None:
    """Its lock goes with it, and those who wait keep their order."""
    holder = taker("holder", hold_s=600)
    waiters = [taker(name, hold_s=0.05) for name in ("first", "second")]
    holder.go()
    _until(lambda: _order(tmp_path) == ["holder"])
    for each in waiters:
        each.queue()
    holder.process.send_signal(signal.SIGKILL)
    assert [each.process.wait(30) for each in waiters] == [0, 0]
    assert _order(tmp_path) == ["holder", "first", "second"]


def test_a_stopped_waiter_is_passed_and_has_its_turn_later(
    taker, leases: Path, tmp_path: Path
) -> None:
    """Somebody's Ctrl-Z does not keep a free device from those behind."""
    stopped, second = taker("stopped"), taker("second")
    with device_lease("GPU-1", folder=leases):
        stopped.queue()
        second.queue()
        os.kill(stopped.process.pid, signal.SIGSTOP)
    assert second.process.wait(30) == 0
    assert _order(tmp_path) == ["second"]
    os.kill(stopped.process.pid, signal.SIGCONT)
    assert stopped.process.wait(30) == 0
    assert _order(tmp_path) == ["second", "stopped"]


def test_whoever_gives_up_leaves_its_place(taker, leases: Path, tmp_path: Path) -> None:
    """The error names the one who has the device, not the one in front, and nobody is held up."""
    first, last = taker("first"), taker("last")
    with device_lease("GPU-1", folder=leases):
        first.queue()
        with (
            pytest.raises(InfraError, match=f"process {os.getpid()} since"),
            device_lease("GPU-1", timeout_s=0.1, folder=leases),
        ):
            pass
        last.queue()
    assert [each.process.wait(30) for each in (first, last)] == [0, 0]
    assert _order(tmp_path) == ["first", "last"]


def test_who_is_alone_does_not_wait(tmp_path: Path) -> None:
    """The row costs less than one look at a lock that is held."""
    waits = []
    for _ in range(50):
        with device_lease("GPU-1", timeout_s=0, folder=tmp_path) as lease:
            waits.append(lease.waited_s)
    assert statistics.median(waits) < 0.01


def test_without_a_row_the_lock_still_holds(tmp_path: Path) -> None:
    """The order is a courtesy: files that cannot be had cost it, and nothing else."""
    for number in range(PLACES):
        (tmp_path / f"GPU-1.wait-{number:02d}").symlink_to(tmp_path / "elsewhere")
    with (
        device_lease("GPU-1", timeout_s=0, folder=tmp_path),
        pytest.raises(InfraError, match="in use by"),
        device_lease("GPU-1", timeout_s=0.1, folder=tmp_path),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
def test_users_of_a_machine_exclude_each_other() -> None:
    """Whoever made the files in the folder for all, the other waits and then has the device."""
    folder = Path(tempfile.mkdtemp(prefix="kopt-leases-", dir="/dev/shm"))
    try:
        folder.chmod(0o1777)
        for first, second in ((1234, 0), (0, 1234), (1234, 4321)):
            with as_user(first, f"{_HELD}sys.stdin.readline()", folder) as inside:
                assert inside.stdout is not None
                assert inside.stdout.readline() == "held\n"
                with as_user(second, _HELD, folder, timeout_s=0.1) as late:
                    assert late.communicate(timeout=30)[0] == "in use\n"
                with as_user(second, _HELD, folder, timeout_s=20) as late:
                    assert inside.stdin is not None
                    inside.stdin.close()
                    assert late.communicate(timeout=30)[0] == "held\n"
    finally:
        shutil.rmtree(folder)


def test_a_lock_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    """A link in its place is not followed, and is no traceback."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / "GPU-1.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InfraError, match="cannot be used"), device_lease("GPU-1", folder=tmp_path):
        pass


_HELD = """
try:
    with device_lease("GPU-1", timeout_s=TIMEOUT, folder=folder):
        print("held", flush=True)
        """


def as_user(user: int, body: str, folder: Path, timeout_s: float = 5.0) -> subprocess.Popen[str]:
    """Takes the device as another user; the modules are loaded before it is one."""
    head = "import os, sys, time, pathlib\nfrom kopt_harness.lease import device_lease\n"
    head += "from kopt_harness.errors import InfraError\n"
    head += f"folder = pathlib.Path({str(folder)!r})\nos.setgid({user})\nos.setuid({user})\n"
    tail = "\nexcept InfraError:\n    print('in use')\n"
    code = head + body.replace("TIMEOUT", str(timeout_s)) + tail
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
