"""The file that people's scripts read: its shape, its words, whole at every moment."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.detailed import DetailedResults, status_of
from kopt_harness.foreign.read import read_results
from kopt_harness.schema import Evaluation, Reason, SolutionRef, Verdict, WorkloadResult

SHARED = Path(__file__).parents[3] / "shared" / "data" / "results"


@pytest.mark.parametrize(
    ("verdict", "phase", "reason", "word"),
    [
        ("pass", "check", None, "PASSED"),
        ("fail", "check", ("wrong-output", "shape of the curve"), "INCORRECT_NUMERICAL"),
        ("fail", "check", ("bad-output", "output has shape (1,)"), "INCORRECT_SHAPE"),
        ("fail", "check", ("bad-output", "output has dtype float64"), "INCORRECT_DTYPE"),
        ("crash", "check", None, "RUNTIME_ERROR"),
        ("crash", "load", None, "RUNTIME_ERROR"),
        ("crash", "build", None, "COMPILE_ERROR"),
        ("timeout", "bench", None, "TIMEOUT"),
        ("reject", "check", None, "REJECTED"),
        ("invalid", "check", None, "INVALID_WORKLOAD"),
        ("infra", "check", None, "INFRA"),
    ],
)
def test_each_verdict_has_its_word(verdict: str, phase: str, reason, word: str) -> None:
    """Those of the contest's evaluators where they have one."""
    assert status_of(Verdict(verdict), phase, [reason] if reason else []) == word


def _result(uuid: str, verdict: Verdict = Verdict.PASS, us: float | None = None) -> WorkloadResult:
    timing = None if us is None else {"median_us": us}
    return WorkloadResult(
        uuid=uuid, axes={}, verdict=verdict, phase="check", trials=1, timing=timing
    )


def test_the_file_has_the_fields_of_the_real_ones(
    tmp_path: Path, catalog: Catalog, gdn_decode, make_solution, honest
) -> None:
    """The same keys at each level, in milliseconds; kopt's own reader takes it."""
    solution, workloads = make_solution(honest), catalog.workloads(gdn_decode)[:2]
    file = DetailedResults(tmp_path / "benchmark_detailed_results.json", 2)
    file.add(solution, workloads[0], _result(workloads[0].uuid))
    one = json.loads(file.path.read_text())
    assert list(one["results"][gdn_decode.name]) == [workloads[0].uuid]
    evaluation = Evaluation(
        solution=SolutionRef(name="s", definition=gdn_decode.name, sha256=solution.sha256),
        target="cpu",
        verdict=Verdict.PASS,
        phase="bench",
        workloads=tuple(_result(w.uuid, us=250.0) for w in workloads),
    )
    file.conclude(evaluation, workloads, {workloads[0].uuid: 1.0})
    found = json.loads(file.path.read_text())
    row = found["results"][gdn_decode.name][workloads[0].uuid]
    assert (row["latency_ms"], row["reference_latency_ms"], row["speedup_factor"]) == (0.25, 1, 4)
    other = found["results"][gdn_decode.name][workloads[1].uuid]
    assert (other["reference_latency_ms"], other["speedup_factor"]) == (None, None)
    real = SHARED / f"{gdn_decode.name}.retained_run.json"
    if real.is_file():
        theirs = json.loads(real.read_text())
        assert found.keys() == theirs.keys()
        (their_rows,) = theirs["results"].values()
        assert found["meta"].keys() == theirs["meta"].keys()
        (ours,), (other_summary,) = found["summary"].values(), theirs["summary"].values()
        assert ours.keys() == other_summary.keys()
        assert row.keys() == next(iter(their_rows.values())).keys()
    assert (one["meta"]["completed"], one["meta"]["finished"]) == (1, None)
    assert (found["meta"]["completed"], found["meta"]["total"]) == (2, 2)
    assert found["summary"][gdn_decode.name]["median_latency_ms"] == 0.25
    reading = read_results([file.path])
    assert sum(each.kind == "workload" for each in reading.results) == 2
    assert reading.problems == ()


def test_what_cannot_be_built_has_a_row_for_each_workload(
    tmp_path: Path, catalog: Catalog, gdn_decode
) -> None:
    """As the contest's evaluators write it."""
    workloads = catalog.workloads(gdn_decode)[:3]
    evaluation = Evaluation(
        solution=SolutionRef(name="s", definition=gdn_decode.name, sha256="0" * 64),
        target="cpu",
        verdict=Verdict.CRASH,
        phase="build",
        reasons=(Reason(code="build-failed", detail="no"),),
    )
    file = DetailedResults(tmp_path / "results.json", 3)
    file.conclude(evaluation, workloads, {})
    rows = json.loads(file.path.read_text())["results"][gdn_decode.name]
    assert {uuid: row["status"] for uuid, row in rows.items()} == dict.fromkeys(
        (w.uuid for w in workloads), "COMPILE_ERROR"
    )


def test_who_reads_meanwhile_finds_a_whole_file(
    tmp_path: Path, catalog: Catalog, gdn_decode, make_solution, honest
) -> None:
    """Every look parses, and nothing that was there is gone."""
    solution, workloads = make_solution(honest), catalog.workloads(gdn_decode)
    file = DetailedResults(tmp_path / "results.json", 30)
    counts: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if file.path.exists():
                counts.append(len(json.loads(file.path.read_text())["results"][gdn_decode.name]))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for workload in workloads[:30]:
            file.add(solution, workload, _result(workload.uuid))
    finally:
        over.set()
        looker.join(10)
    assert counts == sorted(counts)
    assert len(json.loads(file.path.read_text())["results"][gdn_decode.name]) == 30
