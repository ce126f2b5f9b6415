"""Sweeps by Ray, with real clusters on this machine: the same verdicts, and nothing lost.

Each cluster takes half a minute to start, so most of this is slow.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InfraError, NotFoundError, UnavailableError, UsageError
from kopt_harness.executors import Place, Work, create_executor, executor_names
from kopt_harness.executors.merge import merged
from kopt_harness.executors.node import pack_piece, work_on
from kopt_harness.journal import read_journal
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import (
    Comparison,
    Definition,
    Evaluation,
    SolutionRef,
    SweepResult,
    Verdict,
    WorkloadResult,
)

MakeSolution = Callable[..., Any]
CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
FEW = ("--correctness-only", "--target", "cpu", "--trials", "1", "--workload", "0,1,10,11")
GONE_S = 30.0
SLOWLY = "    import time\n    time.sleep(0.4)\n"
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
few = {"object_store_memory": 100 << 20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **few})
nodes = [cluster.add_node(num_cpus=1, resources={"kopt_cpu": 1}, **few) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    print("removed", flush=True)
cluster.shutdown()
"""
"""Two nodes beside a head that offers nothing; each line that it reads takes one away."""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found


class Kopt(NamedTuple):
    """A root of its own, and a way to sweep in it."""

    root: Path

    def solution(self, name: str, then: str = "") -> Path:
        """The PyTorch solution, with lines added to its function."""
        folder = self.root / "mine" / name
        shutil.copytree(CHECKOUT / "kernels" / DECODE / "solutions" / "torch-vectorized", folder)
        kernel = folder / "solution" / "python" / "kernel.py"
        kernel.write_text(kernel.read_text() + then)
        return folder

    def start(self, *words: object) -> subprocess.Popen[str]:
        """A sweep by Ray, running."""
        command = [sys.executable, "-m", "kopt_controller", "--root", str(self.root), "--json"]
        return subprocess.Popen(
            [*command, "sweep", "--executor", "ray", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, *words: object) -> Ended:
        """A sweep by Ray, to its end."""
        return end(self.start(*words))


def end(process: subprocess.Popen[str]) -> Ended:
    """Waits for it."""
    out, err = process.communicate(timeout=300)
    return Ended(process.returncode, out, err)


@pytest.fixture
def kopt(tmp_path: Path) -> Kopt:
    """An empty archive beside the definitions of the project."""
    pytest.importorskip("ray")
    for name in ("kernels", "configs"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    return Kopt(tmp_path)


class Running(NamedTuple):
    """A cluster."""

    address: str
    process: subprocess.Popen[str]

    def remove_a_node(self) -> None:
        """Kills all processes of one node."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "removed\n"


@pytest.fixture
def cluster() -> Iterator[Running]:
    """Three nodes of Ray on this machine; two have its processor to offer."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    family = [psutil.Process(process.pid)]
    try:
        address = process.stdout.readline().strip()
        family += psutil.Process(process.pid).children(recursive=True)
        yield Running(address, process)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        for each in psutil.wait_procs(family, timeout=GONE_S)[1]:
            each.kill()


def until(true: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 180.0) -> Any:
    """What ``true`` says, once it is something."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return found


def checks(journal: Path) -> list[str]:
    """Keys of the workloads that are done."""
    if not journal.is_file():
        return []
    keys = [json.loads(line)["key"] for line in journal.read_bytes().splitlines(keepends=False)]
    return [key for key in keys if "/check/" in key]


def same_verdicts(document: dict[str, Any]) -> bool:
    """Whether each of the four workloads passes, once and in its place."""
    rows = [(row["axes"]["batch_size"], row["verdict"]) for row in document["workloads"]]
    return len(rows) == 4 and {verdict for _, verdict in rows} == {"pass"}


def test_executors_are_found_by_name(catalog: Catalog) -> None:
    """Each has a file; an unknown one, and an address for this machine, are refused."""
    place = Place(catalog, "cpu", MeasureOptions())
    assert executor_names() == ("local", "ray")
    local = create_executor("local", place)
    assert local.setting.target.name == "cpu"
    local.close()
    with pytest.raises(NotFoundError, match="'slurm'") as unknown:
        create_executor("slurm", place)
    assert "local, ray" in unknown.value.hint
    with pytest.raises(UsageError, match="knows no address"):
        create_executor("local", place._replace(address="host:6379"))


def test_a_missing_ray_is_said(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error names what to install."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnavailableError, match="package ray") as missing:
        create_executor("ray", Place(catalog, "cpu", MeasureOptions()))
    assert "'.[ray]'" in missing.value.hint


def test_an_address_where_nobody_answers_is_said_at_once(catalog: Catalog) -> None:
    """It does not take the minutes for which Ray would try."""
    pytest.importorskip("ray")
    place = Place(catalog, "cpu", MeasureOptions(), address="127.0.0.1:1")
    start = time.monotonic()
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        create_executor("ray", place)
    assert time.monotonic() - start < 30


def evaluation(verdict: Verdict, uuids: tuple[str, ...], epoch: str) -> SweepResult:
    """What a batch has found."""
    rows = tuple(
        WorkloadResult(uuid=uuid, axes={}, verdict=verdict, phase="check", trials=1)
        for uuid in uuids
    )
    found = Evaluation(
        solution=SolutionRef(name="s", definition="d", sha256="0" * 64),
        target="cpu",
        verdict=verdict,
        phase="check",
        workloads=rows,
        environment={"epoch": epoch, "rules": {}},
    )
    return SweepResult(evaluation=found, comparison=None, complete=True)


def test_batches_of_several_nodes_become_one_result(
    catalog: Catalog, gdn_decode: Definition, make_solution: MakeSolution, honest: str
) -> None:
    """The worst verdict counts, the order is that of the workloads, all nodes are named."""
    workloads = catalog.workloads(gdn_decode)[:3]
    first, second, third = (each.uuid for each in workloads)
    work = Work(make_solution(honest), None, workloads)
    batches = [
        evaluation(Verdict.PASS, (first, third), "a"),
        evaluation(Verdict.FAIL, (second,), "b"),
    ]
    whole = merged(work, batches)
    assert whole.evaluation.verdict == Verdict.FAIL
    assert [row.uuid for row in whole.evaluation.workloads] == [first, second, third]
    assert whole.complete
    assert {each["epoch"] for each in whole.evaluation.environment["nodes"]} == {"a", "b"}
    assert not merged(work._replace(workloads=catalog.workloads(gdn_decode)[:4]), batches).complete


def test_times_of_two_machines_are_never_one_result(
    catalog: Catalog, gdn_decode: Definition, make_solution: MakeSolution, honest: str
) -> None:
    """A comparison in one of several batches is refused."""
    workloads = catalog.workloads(gdn_decode)[:2]
    work = Work(make_solution(honest), None, workloads)
    one, two = (evaluation(Verdict.PASS, (each.uuid,), "a") for each in workloads)
    ref = one.evaluation.solution
    timed = Comparison.model_construct(a=ref, b=ref)
    with pytest.raises(InfraError, match="more than one machine"):
        merged(work, [one.model_copy(update={"comparison": timed}), two])


def test_a_piece_needs_nothing_but_what_is_sent(
    catalog: Catalog,
    gdn_decode: Definition,
    make_solution: MakeSolution,
    honest: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node judges from the data alone, sends records as they come, and takes known ones."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workloads = catalog.workloads(gdn_decode)[:1]
    work = Work(make_solution(honest), None, workloads)
    options = MeasureOptions(trials=1, pool=1, sweep_stress_sets=0)
    piece = json.loads(json.dumps(pack_piece(catalog, "cpu", options, work, {})))
    assert not any(name.startswith(("solutions", "LOG")) for name in piece["files"])
    messages = list(work_on(piece))
    kinds = [each["kind"] for each in messages]
    assert kinds.count("checked") == 1
    assert kinds[-1] == "result"
    records = {each["key"]: each["value"] for each in messages if each["kind"] == "record"}
    (scope,) = {key.split("/")[0] for key in records}
    assert records[f"{scope}/node"]["device"]
    result = SweepResult.model_validate(messages[-1]["value"])
    assert result.evaluation.verdict == Verdict.PASS
    again = list(work_on({**piece, "known": records}))
    assert [each["kind"] for each in again] == ["checked", "result"]
    elsewhere = {f"elsewhere/{key.partition('/')[2]}": each for key, each in records.items()}
    anew = list(work_on({**piece, "known": elsewhere}))
    made = {each["key"] for each in anew if each["kind"] == "record"}
    assert made == set(records), "what another machine has measured stands for nothing here"
    other = list(work_on({**piece, "version": "0.0.0"}))
    assert [each["type"] for each in other] == ["UnavailableError"]


@pytest.mark.slow
def test_a_sweep_by_ray_is_like_any_other(kopt: Kopt) -> None:
    """Two workers on this machine: all verdicts in one journal, and no process is left."""
    folder = kopt.root / "out"
    before = set(psutil.pids())
    ended = kopt.run(kopt.solution("plain"), *FEW, "--workers", 2, "--out-dir", folder)
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    keys = checks(folder / "journal.jsonl")
    assert len(keys) == len(set(keys)) == 4
    results = json.loads((folder / "benchmark_detailed_results.json").read_text())["results"]
    (rows,) = results.values()
    assert {row["status"] for row in rows.values()} == {"PASSED"}
    assert json.loads((folder / "progress.json").read_text())["done"] == 4
    left = [each for each in psutil.process_iter(["cmdline"]) if each.pid not in before]
    assert not [each for each in left if "ray" in " ".join(each.info["cmdline"] or ())]


@pytest.mark.slow
def test_a_killed_worker_and_a_lost_node_lose_nothing(kopt: Kopt, cluster: Running) -> None:
    """Their work is done again by others; no record is lost or twice, all verdicts are there."""
    folder = kopt.root / "out"
    journal = folder / "journal.jsonl"
    solution = kopt.solution("slow", SLOWLY)
    process = kopt.start(
        *(solution, *FEW, "--workers", 2, "--out-dir", folder, "--address", cluster.address)
    )

    def worker() -> psutil.Process | None:
        for each in psutil.process_iter(["cmdline"]):
            if "ray::work_on" in " ".join(each.info["cmdline"] or ()):
                return each
        return None

    until(worker, process).kill()
    until(lambda: checks(journal), process)
    cluster.remove_a_node()
    ended = end(process)
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    keys = [record.key for record in read_journal(journal)]
    assert len(keys) == len(set(keys))
    assert len(checks(journal)) == 4
    assert json.loads((folder / "progress.json").read_text())["retried"] >= 1
    absent = kopt.run(solution, "--target", "h200", "--address", cluster.address)
    assert absent.code == 2
    assert "kopt_h200" in absent.document["error"]


@pytest.mark.slow
def test_who_stops_a_sweep_by_ray_can_go_on(kopt: Kopt) -> None:
    """Exit 130 with the command that continues; nothing is left running, nothing done twice."""
    folder = kopt.root / "out"
    words = (kopt.solution("slow", SLOWLY), *FEW, "--workers", 2, "--out-dir", folder)
    process = kopt.start(*words)
    until(lambda: checks(folder / "journal.jsonl"), process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert ended.code == 130, ended.err
    assert "--resume" in ended.document["hint"]
    assert psutil.wait_procs(family, timeout=GONE_S)[1] == []
    done = checks(folder / "journal.jsonl")
    ended = kopt.run(*words, "--resume")
    assert ended.code == 0, ended.err
    assert same_verdicts(ended.document)
    keys = checks(folder / "journal.jsonl")
    assert keys[: len(done)] == done
    assert len(keys) == len(set(keys)) == 4
