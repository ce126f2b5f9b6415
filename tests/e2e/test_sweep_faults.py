"""Sweeps whose processes are killed, whose disk is full, whose clock goes back: nothing is lost.

All sweeps are the program and its real processes; ``scripts/kill_sweeps.py`` does the same for
longer. Candidates that hang, fork, fill memory or flood the log are in ``tests/exploits/``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kopt_controller.cli import main
from kopt_harness.journal import Journal, read_journal

CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
FOUR = ("--workload", "0,1,10,11")
GONE_S = 20.0
SLOWLY = "    import time\n    time.sleep(0.4)\n"
"""Gives who wants to kill something time for it."""
PAST_S = 3600
CLOCK = """
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
static long back;
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME) now->tv_sec -= 60 * ++back;
    return failed;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
"""
"""A wall clock that is set back by a minute whenever somebody looks at it."""


class Ended(NamedTuple):
    """A program that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found


class Kopt(NamedTuple):
    """A root of its own, and a way to run ``kopt`` in it."""

    root: Path

    def solution(self, name: str, then: str = "") -> Path:
        """The PyTorch solution, with lines added to its function."""
        folder = self.root / "mine" / name
        shutil.copytree(CHECKOUT / "kernels" / DECODE / "solutions" / "torch-vectorized", folder)
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("torch-vectorized", name))
        kernel = folder / "solution" / "python" / "kernel.py"
        kernel.write_text(kernel.read_text() + then)
        return folder

    def start(self, *arguments: object, **variables: str) -> subprocess.Popen[str]:
        """A command, running."""
        argv = [sys.executable, "-m", "kopt_controller", "--root", str(self.root), "--json"]
        return subprocess.Popen(
            [*argv, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        )

    def run(self, *arguments: object, **variables: str) -> Ended:
        """A command, to its end."""
        return end(self.start(*arguments, **variables))

    def look(self, *arguments: str) -> dict[str, Any]:
        """What a command prints that measures nothing; in this process, which is started."""
        out = io.BytesIO()
        with contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)):
            assert main(["--root", str(self.root), "--json", *arguments]) == 0
            found: dict[str, Any] = json.loads(out.getvalue())
        return found

    def sweep(self, *arguments: object) -> tuple[object, ...]:
        """The words of a small sweep without timing."""
        few = ("--correctness-only", "--target", "cpu", "--trials", "1", *FOUR)
        return ("sweep", *few, *arguments)


def end(process: subprocess.Popen[str]) -> Ended:
    """Waits for it."""
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, out, err)


@pytest.fixture
def kopt(tmp_path: Path) -> Kopt:
    """An empty archive beside the definitions of the project."""
    for name in ("kernels", "configs"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    return Kopt(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; skipped where mounting is refused."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.call(mount, stderr=subprocess.DEVNULL):
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def until(true: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 60.0) -> Any:
    """What ``true`` says, once it is something."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return found


def checks(journal: Path) -> list[str]:
    """Keys of the workloads that are done."""
    return [record.key for record in read_journal(journal) if "/check/" in record.key]


def worker(process: subprocess.Popen[str], kind: str) -> psutil.Process | None:
    """The innermost of a sweep's processes of a kind: no guard of it."""
    found = None
    for each in psutil.Process(process.pid).children(recursive=True):
        try:
            if f"kopt-worker-{kind}-" in " ".join(each.cmdline()):
                found = each
        except psutil.Error:
            continue
    return found


def same_verdicts(document: dict[str, Any], count: int = 4) -> bool:
    """Whether every workload passes, each once."""
    rows = [(row["uuid"], row["verdict"]) for row in document["workloads"]]
    return len(set(rows)) == count and {verdict for _, verdict in rows} == {"pass"}


@pytest.mark.parametrize("done", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_killed_sweep_goes_on_where_it_was(kopt: Kopt, done: int) -> None:
    """Before its first record and between others; a torn tail is kept, the rest is used."""
    folder = kopt.root / "out"
    words = kopt.sweep(kopt.solution("slow", SLOWLY), "--out-dir", folder, "--workers", 2)
    process = kopt.start(*words)
    journal = folder / "journal.jsonl"
    until(lambda: worker(process, "judge") and len(checks(journal)) >= done, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(family, timeout=GONE_S)[1] == []
    before = journal.read_bytes()
    journal.write_bytes(before + b'{"schema":1,"seq":')
    ended = kopt.run(*words, "--resume")
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    assert journal.read_bytes().startswith(before)
    assert len(set(checks(journal))) == len(checks(journal)) == 4
    assert (folder / "journal.jsonl.aside-1").read_bytes() == b'{"schema":1,"seq":'
    assert "was no record" in ended.err


def test_a_killed_judge_is_replaced_and_a_killed_candidate_has_crashed(kopt: Kopt) -> None:
    """A judge says nothing of the candidate, while what kills a candidate is its own affair."""
    folder = kopt.root / "out"
    words = kopt.sweep(kopt.solution("slow", SLOWLY), "--out-dir", folder, "--workers", 2)
    process = kopt.start(*words)
    journal = folder / "journal.jsonl"
    until(lambda: worker(process, "candidate"), process)
    until(lambda: worker(process, "judge"), process).kill()
    until(lambda: checks(journal), process)
    until(lambda: worker(process, "candidate"), process).kill()
    ended = end(process)
    verdicts = sorted(row["verdict"] for row in ended.document["workloads"])
    assert verdicts in (["crash", "pass", "pass", "pass"], ["pass"] * 4)
    assert ended.code == ("crash" in verdicts)
    progress = json.loads((folder / "progress.json").read_text())
    assert progress["retried"] >= 1
    again = kopt.run(*words, "--retry")
    assert sorted(row["verdict"] for row in again.document["workloads"]) == verdicts


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_who_stops_a_sweep_can_go_on(kopt: Kopt, number: signal.Signals) -> None:
    """Exit 130 at once, with the command that continues; nothing is left running."""
    folder = kopt.root / "out"
    words = kopt.sweep(kopt.solution("slow", SLOWLY), "--out-dir", folder, "--workers", 2)
    process = kopt.start(*words)
    until(lambda: checks(folder / "journal.jsonl"), process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    start = time.monotonic()
    ended = end(process)
    assert ended.code == 130
    assert time.monotonic() - start < GONE_S
    assert "--resume" in ended.document["hint"]
    assert psutil.wait_procs(family, timeout=GONE_S)[1] == []
    rows = [record.value for record in read_journal(folder / "journal.jsonl")]
    assert {row["verdict"] for row in rows if "verdict" in row} == {"pass"}
    status = kopt.look("status")
    assert (status["state"], status["kind"]) == ("interrupted", "sweep")
    ended = kopt.run(*words, "--resume")
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    assert kopt.look("status")["state"] == "finished"


def test_a_full_disk_loses_nothing(kopt: Kopt, small_disk: Path) -> None:
    """Exit 3 and what to do; with room again it goes on, and the journal is whole throughout."""
    folder = small_disk / "out"
    words = kopt.sweep(kopt.solution("plain"), "--out-dir", folder)
    folder.mkdir()
    journal = folder / "journal.jsonl"
    with Journal(journal):
        pass
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (240 << 10))
    ended = kopt.run(*words, "--resume")
    assert ended.code == 3, ended.err
    assert "room" in ended.document["hint"]
    complete = journal.read_bytes()
    assert complete.endswith(b"\n") or not complete
    filler.unlink()
    ended = kopt.run(*words, "--resume")
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    assert journal.read_bytes().startswith(complete)


def test_a_read_only_archive_can_be_looked_at(kopt: Kopt, small_disk: Path) -> None:
    """A sweep says that it cannot write, and starts nothing; history and status answer."""
    local = kopt.root / "artifacts"
    local.symlink_to(small_disk)
    solution = kopt.solution("plain")
    (small_disk / "local").mkdir()
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True, capture_output=True)
    ended = kopt.run(*kopt.sweep(solution))
    assert ended.code in (2, 3)
    assert "Read-only" in ended.document["error"]
    assert kopt.look("history")["runs"] == []
    assert kopt.look("status")["run"] is None


def test_two_sweeps_share_an_archive_but_no_journal(kopt: Kopt) -> None:
    """Side by side each has its own; two of one folder are refused, the first goes on."""
    slow = kopt.solution("slow", SLOWLY)
    crashes = "    import ctypes\n    ctypes.string_at(0)\n"
    segfault = kopt.solution("segfault", crashes)
    first = kopt.start(*kopt.sweep(slow, segfault, "--workers", 2))
    found = kopt.root / "artifacts" / "local" / "sweeps"
    until(lambda: list(found.glob("*/journal.jsonl")), first)
    (taken,) = [path for path in found.iterdir() if not path.is_symlink()]
    refused = kopt.run(*kopt.sweep(slow, segfault, "--out-dir", taken, "--resume"))
    assert first.poll() is None, "it was over too soon to show anything"
    assert refused.code == 2
    assert "another process" in refused.document["error"]
    other = kopt.start(*kopt.sweep(slow, "--out-dir", kopt.root / "other"))

    def both() -> dict[str, Any] | None:
        shown = kopt.look("status", taken.name)["progress"]
        workers = [each["worker"] for each in shown["workers"]] if shown else []
        return shown if workers == ["worker 1", "worker 2"] else None

    shown = until(both, first)
    assert shown["total"] == 8
    ended, beside = end(first), end(other)
    assert beside.code == 0, beside.err
    assert same_verdicts(beside.document)
    assert ended.code == 1
    sweeps = {each["solution"]["name"]: each for each in ended.document["sweeps"]}
    assert same_verdicts(sweeps["slow"])
    assert sweeps["segfault"]["verdict"] == "crash"
    names = {path.parent.name.split("-")[0] for path in taken.glob("*/*.json")}
    assert names == {"slow", "segfault"}
    for path in taken.glob("*/benchmark_detailed_results.json"):
        (rows,) = json.loads(path.read_text())["results"].values()
        word = "PASSED" if path.parent.name.startswith("slow") else "RUNTIME_ERROR"
        assert {row["status"] for row in rows.values()} == {word}
    counts = kopt.look("reindex")
    assert counts["runs"] == 2
    assert counts["evaluations"] in (8 + 3, 8 + 4), "after three deaths none is begun"


def test_a_clock_that_goes_back_changes_nothing(kopt: Kopt) -> None:
    """Deadlines, order of records and order of runs depend on no wall clock."""
    source, library = kopt.root / "clock.c", kopt.root / "clock.so"
    source.write_text(CLOCK)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    solution = kopt.solution("plain")
    runs: list[str] = []
    for _ in range(2):
        ended = kopt.run(*kopt.sweep(solution), LD_PRELOAD=str(library))
        assert ended.code == 0, ended.err
        assert same_verdicts(ended.document)
        runs.append(kopt.look("status")["run"])
    assert runs[0] < runs[1]
    for journal in (kopt.root / "artifacts/local/sweeps").glob("*/journal.jsonl"):
        records = read_journal(journal)
        assert [record.seq for record in records] == list(range(len(records)))
        times = [record.time for record in records]
        assert times == sorted(times, reverse=True), "the clock did not go back"
