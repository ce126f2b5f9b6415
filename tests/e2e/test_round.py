"""``kopt round`` as a newcomer runs it, on the CPU: to its end, and killed on the way.

The definition is the project's own with four small workloads, in a root of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kopt_harness.journal import JournalRecord, read_journal

pytestmark = pytest.mark.alone

CHECKOUT = Path(__file__).parents[2]
DEFINITION = "gdn_decode_qk4_v8_d128_k_last"
BATCHES = [1, 1, 4, 4]
CONFIG = """
max_candidates = 2
search_seed = 1

[measure]
trials = 1
pool = 1
blocks_min = 2
blocks_max = 2
"""
FIRST = '[cpu]\nsolution = "torch-vectorized"\n'
PATIENCE_S = 300.0
"""The machine may be shared, and timing waits for others."""


class Scratch(NamedTuple):
    """A root in which one run is made."""

    path: Path

    @property
    def pointer(self) -> Path:
        """Names the incumbent."""
        return self.path / "kernels" / DEFINITION / "retained.toml"

    @property
    def journal(self) -> Path:
        """Of the only run."""
        (folder,) = (self.path / "artifacts" / "local" / "runs").iterdir()
        return folder / "journal.jsonl"

    @property
    def records(self) -> tuple[JournalRecord, ...]:
        """Of the only run."""
        return read_journal(self.journal)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """``kopt`` in a process of its own."""
        config = ["--config", str(self.path / "small.toml")] if command[0] == "round" else []
        place = ["--root", str(self.path), "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "kopt_controller", *place, *config, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.path,
        )

    def finish(self, *command: str) -> dict[str, Any]:
        """Runs a command that must succeed; its document."""
        with self.start(*command) as child:
            out, err = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0, err
        assert "Traceback" not in err
        document: dict[str, Any] = json.loads(out)
        return document


ROUND = ("round", "--definition", "gdn_decode", "--target", "cpu")


@pytest.fixture
def scratch(tmp_path: Path, builds: Path) -> Iterator[Scratch]:
    """A root with one definition, the first incumbent, and no history.

    Its build cache is that of other tests: compiling is not what is tested.
    """
    source = CHECKOUT / "kernels" / DEFINITION
    folder = tmp_path / "kernels" / DEFINITION
    shutil.copytree(source, folder)
    lines = (source / "workloads.jsonl").read_text().splitlines()
    by_batch: dict[int, list[str]] = {}
    for line in lines:
        by_batch.setdefault(json.loads(line)["axes"]["batch_size"], []).append(line)
    chosen = [by_batch[batch].pop(0) for batch in BATCHES]
    (folder / "workloads.jsonl").write_text("\n".join(chosen) + "\n")
    (tmp_path / "small.toml").write_text(CONFIG)
    (tmp_path / "artifacts" / "local").mkdir(parents=True)
    (tmp_path / "artifacts" / "local" / "builds").symlink_to(builds)
    scratch = Scratch(tmp_path)
    scratch.pointer.write_text(FIRST)
    yield scratch
    shutil.rmtree(tmp_path / "kernels")


def require_whole(scratch: Scratch, document: dict[str, Any]) -> None:
    """A complete round: state, candidates, sweep, one decision, and what it says was done."""
    (found,) = document["rounds"]
    assert found["definition"] == DEFINITION
    assert found["target"] == "cpu"
    assert found["state"]
    assert found["direction"]["id"]
    assert 1 <= len(found["candidates"]) <= 2
    assert all(candidate["verdict"] == "pass" for candidate in found["candidates"])
    assert found["decision"]["label"] in ("promote", "archive", "reject")
    assert found["decision"]["reason"]
    local = scratch.path / "artifacts" / "local"
    for each in (*found["candidates"], found["incumbent"], found["incumbent_before"]):
        assert (local / "objects" / f"{each['sha256']}.json").is_file()

    moved = found["incumbent"]["sha256"] != found["incumbent_before"]["sha256"]
    retained = scratch.path / "artifacts" / "retained" / DEFINITION / "cpu"
    assert moved == (found["decision"]["label"] == "promote")
    assert moved == (scratch.pointer.read_text() != FIRST)
    assert moved == retained.is_dir()
    if moved:
        assert found["incumbent"]["sha256"] in scratch.pointer.read_text()
        summary = json.loads((retained / "summary.json").read_text())
        assert summary["solution"]["sha256"] == found["incumbent"]["sha256"]
        assert len(summary["workloads"]) == len(BATCHES)
    if found["sweep"] is not None:
        assert found["sweep"]["workloads"] == len(BATCHES)

    keys = [record.key for record in scratch.records]
    assert keys[-1] == "finished"
    assert len(set(keys)) == len(keys)
    require_blocks_used(scratch, found)


def require_blocks_used(scratch: Scratch, found: dict[str, Any]) -> None:
    """Every recorded block stands in a comparison, and none stands in one twice."""
    recorded = Counter(r.key.rsplit("/", 1)[0] for r in scratch.records if "/block/" in r.key)
    gates = [candidate["gate"]["comparison"] for candidate in found["candidates"]]
    sweep = found["sweep"] and found["sweep"]["comparison"]
    again = [
        record.value["gate"] and record.value["gate"]["comparison"]
        for record in scratch.records
        if "/validation/" in record.key and record.key.endswith("/outcome")
    ]
    compared = [row["n"] for each in (*gates, sweep, *again) if each for row in each["workloads"]]
    assert sorted(recorded.values()) == sorted(compared)


def test_a_round_completes_and_is_replayed_identically(scratch: Scratch) -> None:
    """From state to decision, the archive written; read again, it decides the same."""
    document = scratch.finish(*ROUND)
    require_whole(scratch, document)
    assert scratch.finish("status")["state"] == "finished"
    (row,) = scratch.finish("history")["runs"]
    assert row["run"] == document["run"]

    journal = scratch.journal.read_bytes()
    assert scratch.finish("resume", document["run"]) == document
    # As somebody else would see it who has the journal and the first incumbent only.
    scratch.pointer.write_text(FIRST)
    shutil.rmtree(scratch.path / "artifacts" / "retained", ignore_errors=True)
    assert scratch.finish("resume", document["run"]) == document
    assert scratch.journal.read_bytes() == journal
    assert scratch.pointer.read_text() == FIRST, "reading a run does not promote again"
    assert not [record.key for record in scratch.records if record.key == "session/1"]


def wait_for_records(scratch: Scratch, child: subprocess.Popen[str], count: int) -> None:
    """Until the journal has so many whole records."""
    deadline = time.monotonic() + PATIENCE_S
    runs = scratch.path / "artifacts" / "local" / "runs"
    while time.monotonic() < deadline and child.poll() is None:
        journals = list(runs.glob("*/journal.jsonl"))
        if journals and journals[0].read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.002)
    raise AssertionError(f"no {count} records; exit code {child.poll()}")


class Killed(NamedTuple):
    """What a kill -9 has left."""

    journal: bytes
    """Whole records."""
    workers: frozenset[str]
    """Kinds of worker that were there before, and are gone."""


def kill_at(scratch: Scratch, child: subprocess.Popen[str], count: int) -> Killed:
    """Kill -9 with so many records; everything below it must end."""
    with child:
        wait_for_records(scratch, child, count)
        below = psutil.Process(child.pid).children(recursive=True)
        words = [word for process in below for word in command_line(process)]
        child.kill()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not [process.pid for process in alive]
    data = scratch.journal.read_bytes()
    folders = [Path(w).parent.name for w in words if w.startswith("kopt worker ")]
    names = {folder.split("-")[2] for folder in folders}  # kopt-worker-<kind>-<random>
    return Killed(data[: data.rfind(b"\n") + 1], frozenset(names))


def command_line(process: psutil.Process) -> list[str]:
    """Of a process that may have just ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.parametrize("kills", [(3, 11, 29)])
def test_a_killed_round_goes_on_and_loses_nothing(scratch: Scratch, kills: tuple[int, ...]) -> None:
    """Killed in the profile, in a gate and in the sweep; then resumed to the end."""
    before = b""
    workers: set[str] = set()
    for number, count in enumerate(kills):
        child = scratch.start(*(ROUND if number == 0 else ("resume",)))
        after, ended = kill_at(scratch, child, count)
        workers |= ended
        assert after.startswith(before), "a completed record was changed"
        assert after.count(b"\n") >= count
        assert b'"key":"finished"' not in after, "the kill came too late to test anything"
        before = after
        assert scratch.finish("status")["state"] == "interrupted"

    assert workers == {"judge", "candidate"}

    document = scratch.finish("resume")
    complete = scratch.journal.read_bytes()
    assert complete.startswith(before)
    require_whole(scratch, document)
    sessions = [r.key for r in scratch.records if r.key.startswith("session/")]
    assert sessions == [f"session/{number}" for number in range(len(kills) + 1)]

    assert scratch.finish("resume", document["run"]) == document
    assert scratch.journal.read_bytes() == complete
