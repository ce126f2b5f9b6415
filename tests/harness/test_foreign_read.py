"""Reading and keeping other people's results: formats, malformed entries, the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kopt_harness.errors import InfraError, InvalidInputError, NotFoundError
from kopt_harness.foreign import import_results, imported_results, read_results
from kopt_harness.foreign.readers import list_readers

HASH = "5a" * 32


def trace(**change: Any) -> dict[str, Any]:
    """One line of a FlashInfer-Trace file."""
    evaluation = {
        "status": "PASSED",
        "environment": {"hardware": "NVIDIA B200", "libs": {"torch": "2.8.0"}},
        "timestamp": "2026-01-02T03:04:05",
        "log": "",
        "correctness": {"max_relative_error": 0.5, "max_absolute_error": 0.25},
        "performance": {
            "latency_ms": 0.5,
            "reference_latency_ms": 4.0,
            "speedup_factor": 8.0,
            "cold": True,
        },
    }
    return {
        "definition": "op",
        "workload": {"uuid": "w1", "axes": {"n": 4}, "inputs": {"x": {"type": "random"}}},
        "solution": "ours",
        "evaluation": evaluation,
        "tags": ["x"],
    } | change


def run_file(**entries: Any) -> dict[str, Any]:
    """A retained run of one definition."""
    return {"results": {"op": entries}, "meta": {"finished": "2026-01-01T00:00:00+00:00"}}


def entry(**change: Any) -> dict[str, Any]:
    """One entry of it."""
    return {
        "status": "PASSED",
        "latency_ms": 0.5,
        "reference_latency_ms": 4.0,
        "speedup_factor": 8.0,
        "max_abs_error": 0.1,
    } | change


def evaluation(**change: Any) -> dict[str, Any]:
    """One evaluation of a search."""
    return {
        "status": "success",
        "score": 0.8,
        "metrics": {"exec_time_ms": 0.5, "baseline_time_ms": 4.0, "speedup": 8.0, "eval_time": 3},
        "artifacts": {"task_id": "op", "bench_stats": {"total_workloads": 7}},
        "code_sha256": HASH,
    } | change


def write(path: Path, value: Any) -> Path:
    """A file with JSON, lines of JSON, or text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, str):
        path.write_text(value)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(v if isinstance(v, str) else json.dumps(v) for v in value))
    else:
        path.write_text(json.dumps(value))
    return path


def test_a_trace_keeps_every_field(tmp_path: Path) -> None:
    """Known ones in their places, unknown ones beside them."""
    reading = read_results([write(tmp_path / "t.jsonl", [trace()])])
    (result,) = reading.results
    assert (result.solution, result.definition, result.workload) == ("ours", "op", "w1")
    assert result.axes == {"n": 4}
    assert (result.latency_ms, result.reference_latency_ms, result.speedup) == (0.5, 4.0, 8.0)
    assert (result.status, result.outcome) == ("PASSED", "passed")
    assert result.environment == {"hardware": "NVIDIA B200", "libs": {"torch": "2.8.0"}}
    assert result.timestamp == "2026-01-02T03:04:05"
    assert str(result.place) == f"{tmp_path / 't.jsonl'}:1"
    assert result.extra["tags"] == ["x"]
    assert result.extra["performance"] == {"cold": True}
    assert result.extra["workload"] == {"inputs": {"x": {"type": "random"}}}
    assert result.extra["evaluation"]["correctness"]["max_absolute_error"] == 0.25
    assert result.foreign is True


def test_a_trace_with_its_solution_inside_has_a_hash(tmp_path: Path) -> None:
    """Of the sources, not of the name."""

    def solution(name: str, content: str) -> dict[str, Any]:
        return {"name": name, "sources": [{"path": "k.py", "content": content}]}

    lines = [
        trace(solution=solution(name, content))
        for name, content in (("a", "1"), ("b", "1"), ("a", "2"))
    ]
    first, second, third = read_results([write(tmp_path / "t.jsonl", lines)]).results
    assert first.source_sha256 == second.source_sha256 != third.source_sha256


def test_malformed_lines_are_problems_and_the_others_are_read(tmp_path: Path) -> None:
    """Each with its line; a workload without a solution is passed over and counted."""
    bad = trace()
    bad["evaluation"]["performance"]["latency_ms"] = "fast"
    lines = [
        trace(),
        "{",
        [1],
        trace(solution=None, evaluation=None),
        bad,
        trace(evaluation=None),
        trace(workload={"uuid": "w", "axes": {"n": 1.5}}),
        '{"definition": "op", "workload": {}, "solution": "s", "evaluation": '
        '{"performance": {"latency_ms": NaN}}}',
        trace(definition=3),
        trace(),
    ]
    reading = read_results([write(tmp_path / "t.jsonl", lines)])
    assert [result.place.position for result in reading.results] == ["1", "10"]
    assert reading.files[0].ignored == 1
    found = {problem.position: problem.detail for problem in reading.problems}
    assert found.keys() == {"2", "3", "5", "6", "7", "8", "9"}
    assert "not valid JSON" in found["2"]
    assert found["5"] == "latency_ms is 'fast', not a number"
    assert found["6"] == "has a solution and no evaluation"
    assert found["8"] == "latency_ms is nan, not a finite number"


def test_a_line_separator_inside_a_string_ends_no_line(tmp_path: Path) -> None:
    """JSON may hold U+2028; only a newline ends a line."""
    lines = [json.dumps(trace(solution="a\u2028b"), ensure_ascii=False), trace()]
    reading = read_results([write(tmp_path / "t.jsonl", lines)])
    assert [result.place.position for result in reading.results] == ["1", "2"]
    assert not reading.problems


def test_a_retained_run_with_its_summary(tmp_path: Path) -> None:
    """Entries, what the file says of them, and what is wrong with one."""
    value = run_file(
        w1=entry(),
        w2=entry(status="RUNTIME_ERROR", latency_ms=None),
        w3=[],
        w4={"latency_ms": True},
    )
    value["summary"] = {"op": {"total_workloads": 4, "avg_latency_ms": 0.5, "p95": 1}}
    reading = read_results([write(tmp_path / "run.json", value)])
    first, failed, stated = reading.results
    assert (first.kind, first.workload, first.speedup) == ("workload", "w1", 8.0)
    assert first.timestamp == "2026-01-01T00:00:00+00:00"
    assert first.extra == {"max_abs_error": 0.1}
    assert (failed.outcome, failed.latency_ms) == ("failed", None)
    assert (stated.kind, stated.workload_count, stated.extra["p95"]) == ("summary", 4, 1)
    assert [problem.position for problem in reading.problems] == ["results/op/w3", "results/op/w4"]


def test_a_table_gives_a_result_for_each_solution(tmp_path: Path) -> None:
    """Microseconds become milliseconds; the reference is no solution; an empty cell is nothing."""
    text = "op,uuid,axes,ours_us,theirs_us(X),torch_ref_us,bonus\n"
    text += "op,w1,T=3;N=4,5.0,,40,a\nop,w2,T=1,x,6,40,b\nop,w3,T=1,5,6,40\n,,,1,2,3,\n"
    text += "op,w5,T=q,5,6,40,b\nop,w6,,7,8,,b\n"
    reading = read_results([write(tmp_path / "t.csv", text)])
    first = reading.results[0]
    assert (first.solution, first.definition, first.axes) == ("ours_us", "op", {"T": 3, "N": 4})
    assert (first.latency_ms, first.reference_latency_ms) == (0.005, 0.04)
    assert (first.outcome, first.extra, first.place.position) == ("unknown", {"bonus": "a"}, "2")
    assert [(r.workload, r.solution) for r in reading.results[1:]] == [
        ("w6", "ours_us"),
        ("w6", "theirs_us(X)"),
    ]
    assert reading.results[1].reference_latency_ms is None
    assert [problem.position for problem in reading.problems] == ["3", "4", "5", "6"]


def test_an_evaluation_of_a_search(tmp_path: Path) -> None:
    """A mean over workloads; a zero there means that nothing was measured."""
    failed = evaluation(
        status="execution_failed",
        score=0.0,
        metrics={"exec_time_ms": 0.0, "baseline_time_ms": 0.0, "speedup": 0.0},
        artifacts={"error": "it broke", "task_id": "op"},
    )
    write(tmp_path / "a" / "r.json", evaluation())
    write(tmp_path / "b" / "r.json", failed)
    first, second = read_results([tmp_path]).results
    assert (first.kind, first.workload, first.workload_count) == ("mean", None, 7)
    assert (first.source_sha256, first.score, first.speedup) == (HASH, 0.8, 8.0)
    assert first.extra["metrics"]["eval_time"] == 3
    assert (second.outcome, second.message, second.latency_ms) == ("failed", "it broke", None)
    assert second.score == 0.0


def test_a_checkpoint_whose_text_was_cut(tmp_path: Path) -> None:
    """What comes before the cut is read; metadata has no result."""
    written = json.dumps(evaluation(), indent=1)
    checkpoint = {
        "solution": f"sha256:{HASH}",
        "solution_id": "s1",
        "score": 0.8,
        "timestamp": 1.5e9,
        "evaluation": written[: written.index("artifacts")] + "...",
        "island_id": 2,
    }
    write(tmp_path / "c" / "best.json", checkpoint)
    write(tmp_path / "c" / "meta.json", {"best_solution_id": "s1", "islands": []})
    reading = read_results([tmp_path])
    (result,) = reading.results
    assert (result.kind, result.source_sha256, result.latency_ms) == ("selected", HASH, 0.5)
    assert result.timestamp == "2017-07-14T02:40:00+00:00"
    assert result.extra["island_id"] == 2
    assert [(f.results, f.ignored) for f in reading.files] == [(1, 0), (0, 1)]


def test_a_folder_lists_what_it_could_not_read(tmp_path: Path) -> None:
    """Other JSON has no reader; broken JSON is a problem; both are listed."""
    write(tmp_path / "good.jsonl", [trace()])
    write(tmp_path / "other.json", {"a": 1})
    write(tmp_path / "broken.json", '{"a": ')
    write(tmp_path / "lfs.csv", "version https://git-lfs.github.com/spec/v1\n")
    write(tmp_path / "notes.txt", "nothing")
    reading = read_results([tmp_path])
    listed = {Path(file.file).name: file.reader for file in reading.files}
    assert listed == {
        "broken.json": None,
        "good.jsonl": "flashinfer-trace",
        "lfs.csv": None,
        "other.json": None,
    }
    assert [Path(problem.file).name for problem in reading.problems] == ["broken.json", "lfs.csv"]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.json", "{", InvalidInputError),
        ("a.json", '{"a": 1}', InvalidInputError),
        ("a.jsonl", '{"uuid": "x"}', InvalidInputError),
        ("a.jsonl", "", InvalidInputError),
        ("a.csv", "a,b\n1,2\n", InvalidInputError),
        ("a.csv", "", InvalidInputError),
        ("a.txt", "x", InvalidInputError),
        ("a.json", '{"results": {"op": {"w": 3}}}', InvalidInputError),
        ("a.csv", "version https://git-lfs.github.com/spec/v1\n", InfraError),
    ],
)
def test_a_named_file_without_results_is_an_error(
    tmp_path: Path, name: str, content: str, error: type[Exception]
) -> None:
    """It says which file; a folder with nothing in it is one too."""
    path = write(tmp_path / "in" / name, content)
    with pytest.raises(error, match=r"a\.\w+"):
        read_results([path])
    with pytest.raises(InvalidInputError, match="in"):
        read_results([tmp_path / "in"])


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(NotFoundError, match="nowhere"):
        read_results([tmp_path / "nowhere"])


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    """Also as part of its folder."""
    path = write(tmp_path / "t.jsonl", [trace()])
    assert len(read_results([path, tmp_path, path]).results) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("make", [trace, evaluation, lambda: run_file(w=entry())])
@given(data=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_entry_makes_a_traceback(tmp_path: Path, make: Any, data: st.DataObject) -> None:
    """With any value in any place: results, problems, or one of our errors; and it can be kept."""
    value = make()
    holder, key = data.draw(st.sampled_from(list(places(value))))
    holder[key] = data.draw(JSON)
    path = (
        write(tmp_path / "f.jsonl", [value]) if make is trace else write(tmp_path / "f.json", value)
    )
    try:
        reading = read_results([path])
    except InvalidInputError:
        return
    import_results(tmp_path / "local", reading.results)
    kept = imported_results(tmp_path / "local")
    assert all(result in kept for result in reading.results)


def places(value: Any) -> Any:
    """Every holder and key inside a document."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places(inner)


def test_an_import_is_idempotent_and_grows(tmp_path: Path) -> None:
    """The same file adds nothing, nor a copy of it; a longer one adds what is new."""
    local = tmp_path / "local"
    path = write(tmp_path / "t.jsonl", [trace(), trace()])
    assert import_results(local, read_results([path]).results) == (2, 0)
    assert import_results(local, read_results([path]).results) == (0, 2)
    journal = (local / "foreign" / "journal.jsonl").read_bytes()
    elsewhere = write(tmp_path / "copy" / "u.jsonl", [trace(), trace()])
    assert import_results(local, read_results([elsewhere]).results) == (0, 2)
    assert (local / "foreign" / "journal.jsonl").read_bytes() == journal
    write(path, [trace(), trace(), trace(solution="new")])
    assert import_results(local, read_results([path]).results) == (1, 2)
    assert (local / "foreign" / "journal.jsonl").read_bytes().startswith(journal)
    kept = imported_results(local)
    assert [result.solution for result in kept] == ["ours", "ours", "new"]
    assert kept == read_results([path]).results


def test_two_files_with_one_content_are_two_results(tmp_path: Path) -> None:
    """Two evaluations that failed alike are not one."""
    for name in ("a", "b"):
        write(tmp_path / name / "r.json", evaluation())
    results = read_results([tmp_path]).results
    assert import_results(tmp_path / "local", results) == (2, 0)
    assert import_results(tmp_path / "local", results) == (0, 2)


def test_nothing_imported_is_nothing(tmp_path: Path) -> None:
    """Without a journal there are no results, and none is made by asking."""
    assert imported_results(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_result_is_no_object_and_no_run(tmp_path: Path) -> None:
    """What promotes reads objects and runs; an import makes neither."""
    import_results(tmp_path, read_results([write(tmp_path / "t.jsonl", [trace()])]).results)
    assert not (tmp_path / "objects").exists()
    assert not (tmp_path / "runs").exists()


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    """A record that is no foreign result names the file."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    line = {"schema": 1, "seq": 0, "time": "", "key": "k", "value": {"a": {"b": 1}}}
    (folder / "journal.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InvalidInputError, match=r"journal\.jsonl"):
        imported_results(tmp_path)


@pytest.mark.parametrize("reader", list_readers(), ids=lambda reader: reader.name)
def test_readers_keep_to_their_protocol(reader: Any, tmp_path: Path) -> None:
    """A name, suffixes with a dot, and no claim on a file of another kind."""
    from kopt_harness.foreign.readers import ResultFile

    assert reader.name
    assert all(suffix.startswith(".") for suffix in reader.suffixes)
    other = write(tmp_path / f"x{reader.suffixes[0]}", '{"nothing": "of this"}')
    assert not reader.recognises(ResultFile(other))
