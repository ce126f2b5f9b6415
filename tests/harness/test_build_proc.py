"""Programs are run to their end or their time, captured, and ended as a whole."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from kopt_harness.environ import agent_environment, worker_environment
from kopt_harness.proc import run


def _ends(pid: int) -> bool:
    """Whether a process is gone, or is within the moment that a kill takes to arrive."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_exit_code_input_and_both_streams_come_back() -> None:
    """What a program prints and how it ends is data, not an exception."""
    done = run(["sh", "-c", "cat; echo oops >&2; exit 3"], timeout_s=10, stdin=b"hello")
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello", "oops\n")
    assert not done.ok
    assert not done.timed_out


def test_merged_streams_keep_their_order() -> None:
    """A log reads as it was written."""
    done = run(["sh", "-c", "echo a; echo b >&2; echo c"], timeout_s=10, merge=True)
    assert (done.stdout, done.stderr) == ("a\nb\nc\n", "")


def test_death_by_signal_is_a_negative_exit_code() -> None:
    """A crash can be told from an exit."""
    assert run(["sh", "-c", "kill -9 $$"], timeout_s=10).returncode == -signal.SIGKILL


def test_output_beyond_the_cap_keeps_beginning_and_end() -> None:
    """The first error and the last word of an endless log both stay."""
    script = "import sys; sys.stdout.write('first' + 'x' * 3_000_000 + 'last')"
    done = run([sys.executable, "-c", script], timeout_s=30, max_output_bytes=1000)
    assert done.truncated
    assert done.stdout.startswith("first")
    assert done.stdout.endswith("last")
    assert "bytes left out" in done.stdout
    assert len(done.stdout) < 1100


@pytest.mark.parametrize("prefix", ["", "setsid "])
def test_timeout_kills_descendants_even_in_their_own_session(prefix: str) -> None:
    """Nothing that the program started outlives its time."""
    script = f"{prefix}sh -c 'echo $$; sleep 60; true' & wait"
    started = time.monotonic()
    done = run(["sh", "-c", script], timeout_s=1)
    assert done.timed_out
    assert time.monotonic() - started < 20
    assert _ends(int(done.stdout))


def test_what_outlives_the_program_in_its_session_is_killed() -> None:
    """A process left in the background does not hold the caller up, nor stay."""
    started = time.monotonic()
    done = run(["sh", "-c", "sh -c 'echo $$; sleep 60; true' & sleep 0.3"], timeout_s=50)
    assert done.ok
    assert time.monotonic() - started < 20
    assert _ends(int(done.stdout))


def test_output_is_watched_as_it_comes_and_may_end_the_program() -> None:
    """Standard output alone, in order; what was printed until then is kept."""
    seen = b""

    def watch(data: bytes) -> bool:
        nonlocal seen
        seen += data
        return b"3" not in seen

    code = (
        "import sys, time\n"
        "print('noise', file=sys.stderr, flush=True)\n"
        "for n in range(1000):\n"
        "    print(n, flush=True)\n"
        "    time.sleep(0.02)\n"
    )
    done = run([sys.executable, "-c", code], timeout_s=60, watch=watch)
    assert seen.startswith(b"0\n1\n2\n3")
    assert b"noise" not in seen
    assert done.returncode == -signal.SIGKILL
    assert not done.timed_out
    assert len(done.stdout.split()) < 1000


def test_agents_environment_is_an_allow_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own variables and where networks are; nothing of kopt, nobody else's key."""
    given = {"A_KEY": "mine", "B_KEY": "theirs", "KOPT_ROOT": "/r", "HTTPS_PROXY": "p"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    environment = agent_environment(tmp_path, ["A_KEY", "NOT_SET"])
    assert environment["A_KEY"] == "mine"
    assert environment["HTTPS_PROXY"] == "p"
    assert {"B_KEY", "KOPT_ROOT", "PYTHONPATH", "NOT_SET"}.isdisjoint(environment)
    assert environment["HOME"] == str(tmp_path)
    assert Path(environment["TMPDIR"]).parent == tmp_path


def test_worker_environment_is_an_allow_list_with_private_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets stay outside; caches and HOME are the worker's own and exist."""
    monkeypatch.setenv("KOPT_TEST_SECRET", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/some/packages")
    environment = worker_environment(tmp_path)
    assert "KOPT_TEST_SECRET" not in environment
    assert environment["PYTHONPATH"] == "/some/packages"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["HOME"] == str(tmp_path)
    for name in ("TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR"):
        assert os.path.isdir(environment[name])  # noqa: PTH112  # a variable is a string
        assert environment[name].startswith(str(tmp_path))


# One system call a line: where PYTHONUNBUFFERED is set, print() makes two.
_TWICE = "import os, time\nos.write(1, b'first\\n')\ntime.sleep(0.1)\nos.write(1, b'last\\n')\n"


def test_what_is_printed_just_before_the_end_is_handed_over() -> None:
    """The program has ended before its first line was dealt with."""
    seen: list[bytes] = []

    def slowly(data: bytes) -> bool:
        seen.append(data)
        time.sleep(0.6)
        return True

    done = run([sys.executable, "-c", _TWICE], timeout_s=20, watch=slowly)
    assert b"".join(seen) == done.stdout.encode() == b"first\nlast\n"


def test_nothing_is_handed_over_once_no_more_is_wanted() -> None:
    """What it prints while it is being ended is kept and no more."""
    seen: list[bytes] = []

    def once(data: bytes) -> bool:
        seen.append(data)
        time.sleep(0.6)
        return False

    done = run([sys.executable, "-c", _TWICE], timeout_s=20, watch=once)
    assert b"".join(seen) == b"first\n"
    assert done.stdout == "first\nlast\n"
