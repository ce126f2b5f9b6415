"""Data sets that flashinfer-bench reads, its answers, and kopt on the same inputs.

Tests that need flashinfer-bench use the interpreter of ``$KOPT_FIB_PYTHON``, or this one where
it is installed here; tests that write data sets need safetensors.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InfraError, InvalidInputError
from kopt_harness.export import TraceSet, segment, write_trace_set
from kopt_harness.official import SideBySide, bench_on_trace_set
from kopt_harness.official_bench import (
    Bench,
    about_bench,
    contest_flags,
    read_traces,
    require_runnable,
)
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Evaluation, Solution, Verdict, Workload
from kopt_harness.setting import Setting

CHECKOUT = Path(__file__).resolve().parents[2]
CATALOG = Catalog(Root(CHECKOUT))
needs_safetensors = pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed"
)
BENCH = Bench(
    python="python",
    version="0.0",
    torch="0",
    python_version="3",
    device="a GPU",
    timer="cupti",
    timer_note="spans",
)

READ = """
import hashlib, json, sys
from pathlib import Path
import torch
from flashinfer_bench.data import TraceSet
try:
    from flashinfer_bench.bench.utils import gen_inputs, load_safetensors
except ImportError as error:
    print(json.dumps({"skip": f"its evaluator cannot be imported: {error}"})); sys.exit()
def digest(v):
    if not isinstance(v, torch.Tensor):
        return v
    raw = v.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(raw).hexdigest()
traces = TraceSet.from_path(sys.argv[1])
(name, definition), = traces.definitions.items()
solutions = [s.name for s in traces.solutions.get(name, [])]
found = {}
for trace in traces.workloads[name]:
    workload = trace.workload
    tensors = load_safetensors(definition, workload, Path(traces.root))
    inputs = gen_inputs(definition, workload, "cpu", tensors)
    found[workload.uuid] = {k: digest(v) for k, v in zip(definition.inputs, inputs)}
print(json.dumps({"solutions": solutions, "inputs": found}))
"""
"""Run by the interpreter with flashinfer-bench: its own classes read the data set."""

TRACES = """
import json
from flashinfer_bench import data
environment = data.Environment(hardware="NVIDIA H200")
workload = lambda uuid: data.Workload(uuid=uuid, axes={"batch_size": 1}, inputs={})
def trace(uuid, status, **fields):
    evaluation = data.Evaluation(
        status=status, environment=environment, timestamp="2026-01-01T00:00:00", **fields)
    made = data.Trace(
        definition="d", workload=workload(uuid), solution="s", evaluation=evaluation)
    return made.model_dump(mode="json")
right = data.Correctness(max_relative_error=1e-3, max_absolute_error=2e-4)
infinite = data.Correctness(max_relative_error=float("inf"), max_absolute_error=float("nan"))
fast = data.Performance(latency_ms=0.0125, reference_latency_ms=2.0, speedup_factor=160.0)
alone = data.Performance(latency_ms=0.0125, reference_latency_ms=0.0, speedup_factor=0.0)
print(json.dumps([
    trace("w-pass", "PASSED", correctness=right, performance=fast),
    trace("w-alone", "PASSED", correctness=right, performance=alone),
    trace("w-wrong", "INCORRECT_NUMERICAL", correctness=infinite, log="first\\nlast line"),
    trace("w-crash", "RUNTIME_ERROR", log="x" * 5000 + "end"),
    trace("w-events", "PASSED", correctness=right, performance=fast,
          log="UserWarning: CUPTI is not installed. Falling back to CUDA events for benchmarking."),
]))
"""
"""The same for recorded traces: built, checked and written by its own classes."""


def _fib_python() -> str:
    named = os.environ.get("KOPT_FIB_PYTHON")
    if named is None and importlib.util.find_spec("flashinfer_bench") is None:
        pytest.skip("flashinfer-bench is not here; name an interpreter with $KOPT_FIB_PYTHON")
    return named or sys.executable


def _fib(script: str, *arguments: object) -> Any:
    command = [_fib_python(), "-W", "ignore", "-c", script, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    if isinstance(found, dict) and "skip" in found:
        pytest.skip(found["skip"])
    return found


class Written(NamedTuple):
    """A data set and what went into it."""

    data: TraceSet
    definition: Definition
    workloads: list[Workload]
    solution: Solution


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """gdn_decode: two workloads of the same axes and a third, with a solution."""
    definition = CATALOG.resolve("gdn_decode")
    every = CATALOG.workloads(definition)
    first = [w for w in every if w.axes == every[0].axes][:2]
    workloads = [*first, next(w for w in every if w.axes["batch_size"] == 4)]
    solution = CATALOG.solution(definition, "torch-vectorized").solution
    folder = tmp_path_factory.mktemp("data") / "set"
    data = write_trace_set(CATALOG, definition, workloads, folder, solution=solution, seed=5)
    return Written(data, definition, workloads, solution)


def _records(data: TraceSet) -> list[dict[str, Any]]:
    (path,) = (data.folder / "workloads").rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_safetensors
def test_a_data_set_has_the_layout_of_flashinfer_trace(decode: Written) -> None:
    """Definition, solution and workloads by type and name, every tensor in a blob below."""
    folder = decode.data.folder
    assert sorted(p.name for p in folder.iterdir()) == [
        "blob",
        "definitions",
        "solutions",
        "workloads",
    ]
    records = _records(decode.data)
    assert [r["workload"]["uuid"] for r in records] == [w.uuid for w in decode.workloads]
    for record, workload in zip(records, decode.workloads, strict=True):
        assert (record["solution"], record["evaluation"]) == (None, None)
        assert record["workload"]["axes"] == workload.axes
        inputs = record["workload"]["inputs"]
        assert list(inputs) == list(decode.definition.inputs)
        for name, spec in decode.definition.inputs.items():
            assert inputs[name]["type"] == ("scalar" if spec.shape is None else "safetensors")
            if spec.shape is not None:
                assert (folder / inputs[name]["path"]).is_file()
    assert decode.data.nbytes > sum(
        decode.definition.input_shapes(w.axes)[3].nbytes for w in decode.workloads
    )


@needs_safetensors
def test_workloads_of_the_same_axes_have_inputs_of_their_own(decode: Written) -> None:
    """They are different draws, as they are different workloads."""
    files = [r["workload"]["inputs"]["state"]["path"] for r in _records(decode.data)]
    first, second = ((decode.data.folder / path).read_bytes() for path in files[:2])
    assert len(first) == len(second)
    assert first != second


@pytest.mark.slow
@needs_safetensors
def test_a_seed_gives_the_same_bytes_again(decode: Written, tmp_path: Path) -> None:
    """And another seed other ones."""

    def blobs(seed: int, name: str) -> list[bytes]:
        made = write_trace_set(
            CATALOG, decode.definition, decode.workloads[:1], tmp_path / name, seed=seed
        )
        return [path.read_bytes() for path in sorted((made.folder / "blob").rglob("*.safetensors"))]

    assert blobs(5, "a") == blobs(5, "b") != blobs(6, "c")


@needs_safetensors
def test_flashinfer_bench_reads_the_data_set_byte_for_byte(decode: Written) -> None:
    """Its own loader gives, for every input, exactly the bytes that kopt's judge reads."""
    found = _fib(READ, decode.data.folder)
    assert found["solutions"] == [decode.solution.name]
    ours = _as_kopt_reads(decode)
    assert set(found["inputs"]) == set(ours)
    assert found["inputs"] == ours


def _as_kopt_reads(written: Written) -> dict[str, dict[str, Any]]:
    """Digests of the inputs as the judge's loader gives them, in a process with torch."""
    script = (
        "import hashlib, json, sys, torch\n"
        "from pathlib import Path\n"
        "from kopt_harness._exported_inputs import ExportedInputs\n"
        "root, name, original = sys.argv[1:4]\n"
        "static, uuids = map(json.loads, sys.argv[4:])\n"
        "made = ExportedInputs(Path(root), name, static, Path(original))\n"
        "rng, found = torch.Generator(), {}\n"
        "def digest(v):\n"
        "    if not isinstance(v, torch.Tensor): return v\n"
        "    raw = v.contiguous().flatten().view(torch.uint8).numpy().tobytes()\n"
        "    return hashlib.sha256(raw).hexdigest()\n"
        "for uuid in uuids:\n"
        "    made.bind(uuid)\n"
        "    values = made.draw({}, rng) | (made.draw_static({}, rng) if static else {})\n"
        "    found[uuid] = {key: digest(v) for key, v in values.items()}\n"
        "print(json.dumps(found))\n"
    )
    arguments = [
        str(written.data.folder),
        written.definition.name,
        str(CATALOG.folder(written.definition)),
        json.dumps(written.definition.kopt.static_inputs),
        json.dumps([w.uuid for w in written.workloads]),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(ran.stdout)
    return found


@needs_safetensors
@pytest.mark.parametrize("alias", ["gdn_prefill", "dsa_topk"])
def test_other_definitions_are_read_as_well(alias: str, tmp_path: Path) -> None:
    """Scalars, integers, fp8 and shared inputs; those of all workloads are written once."""
    definition = CATALOG.resolve(alias)
    workloads = sorted(
        CATALOG.workloads(definition), key=lambda w: CATALOG.cost(definition, w.axes)
    )[:2]
    solution = CATALOG.solution(definition, "torch-vectorized").solution
    data = write_trace_set(CATALOG, definition, workloads, tmp_path / "set", solution=solution)
    static = definition.kopt.static_inputs
    for name in static:
        assert len({r["workload"]["inputs"][name]["path"] for r in _records(data)}) == 1
    written = Written(data, definition, workloads, solution)
    assert _fib(READ, data.folder)["inputs"] == _as_kopt_reads(written)


@needs_safetensors
def test_kopt_judges_on_the_inputs_of_the_data_set(decode: Written, tmp_path: Path) -> None:
    """A right solution passes and is timed; there is no other generator than the data set's."""
    catalog = _scratch(tmp_path)
    options = MeasureOptions(trials=3, pool=3, calls_per_slot=1)
    setting = Setting.here(catalog, "cpu", options)
    found = bench_on_trace_set(
        setting, decode.solution, decode.workloads, decode.data, tmp_path / "on", calls=3
    )
    assert found.verdict == Verdict.PASS, found.reasons
    assert [row.uuid for row in found.workloads] == [w.uuid for w in decode.workloads]
    for row in found.workloads:
        assert row.trials == 1
        assert row.tiers["contest"].verdict == "pass"
        assert row.timing is not None
        assert row.timing["n"] == 3
    assert "public-seed" not in [flag.code for flag in found.flags]


@needs_safetensors
def test_the_inputs_that_kopt_calls_with_are_the_exported_ones(
    decode: Written, tmp_path: Path, make_solution: Any, honest: str
) -> None:
    """A solution that refuses all keys but those of one workload passes on that one alone."""
    state = next(iter(_records(decode.data)))["workload"]["inputs"]["A_log"]["path"]
    expected = _tensor(decode.data.folder / state, "A_log")
    picky = honest.replace(
        "    batch = q.shape[0]\n",
        f"    assert A_log.tolist() == {expected!r}\n    batch = q.shape[0]\n",
    )
    solution = make_solution(picky, name="picky")
    setting = Setting.here(_scratch(tmp_path), "cpu", MeasureOptions())
    found = bench_on_trace_set(
        setting, solution, decode.workloads[:2], decode.data, tmp_path / "on", calls=3
    )
    verdicts = [row.verdict for row in found.workloads]
    assert verdicts == [Verdict.PASS, Verdict.CRASH]


def _tensor(path: Path, name: str) -> list[float]:
    script = (
        "import json, sys, safetensors.torch as st\n"
        "print(json.dumps(st.load_file(sys.argv[1])[sys.argv[2]].tolist()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path), name], capture_output=True, text=True, check=True
    )
    values: list[float] = json.loads(ran.stdout)
    return values


def _scratch(path: Path) -> Catalog:
    """The project's definitions, with an archive of its own."""
    (path / "kernels").symlink_to(CHECKOUT / "kernels")
    return Catalog(Root(path))


@needs_safetensors
def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Nothing in it is touched."""
    (tmp_path / "mine").write_text("x")
    definition = CATALOG.resolve("gdn_decode")
    with pytest.raises(InvalidInputError, match="not an empty folder"):
        write_trace_set(CATALOG, definition, CATALOG.workloads(definition)[:1], tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_an_input_that_is_left_out_cannot_be_exported(tmp_path: Path) -> None:
    """A data set has no word for None: what a reader would draw instead is another input."""
    pytest.importorskip("safetensors")
    name = "gdn_decode_qk4_v8_d128_k_last"
    folder = tmp_path / "kernels" / name
    folder.mkdir(parents=True)
    for file in (CHECKOUT / "kernels" / name).glob("*.*"):
        (folder / file.name).write_text(file.read_text())
    inputs = folder / "inputs.py"
    inputs.write_text(
        inputs.read_text() + '\n\nGENERATORS = {"no-state": GENERATORS["no-state"]}\n'
    )
    catalog = Catalog(Root(tmp_path))
    definition = catalog.resolve("gdn_decode")
    with pytest.raises(InvalidInputError, match="'state' is None"):
        write_trace_set(catalog, definition, catalog.workloads(definition)[:1], tmp_path / "out")
    assert not (tmp_path / "out" / "workloads").exists()


@pytest.mark.parametrize(
    ("name", "expected"), [("../up", "-up"), ("a b/c", "a-b-c"), ("", "-"), ("plain_1", "plain_1")]
)
def test_a_name_is_one_part_of_a_path(name: str, expected: str) -> None:
    """Whatever a solution is called, its file lies in the data set."""
    assert segment(name) == expected


def test_traces_of_flashinfer_bench_are_read() -> None:
    """As its own classes write them: latencies, errors, logs, and workloads without a trace."""
    uuids = ["w-pass", "w-alone", "w-wrong", "w-crash", "w-events", "w-missing"]
    rows = {row.uuid: row for row in read_traces(_fib(TRACES), uuids, "cupti")}
    assert list(rows) == uuids
    passed = rows["w-pass"]
    assert (passed.status, passed.latency_us, passed.reference_latency_us) == ("PASSED", 12.5, 2e3)
    assert (passed.max_absolute_error, passed.max_relative_error) == (2e-4, 1e-3)
    assert (passed.timer, passed.log) == ("cupti", "")
    assert rows["w-alone"].reference_latency_us is None
    wrong = rows["w-wrong"]
    assert (wrong.status, wrong.latency_us) == ("INCORRECT_NUMERICAL", None)
    assert (wrong.max_absolute_error, wrong.max_relative_error) == (None, None)
    assert wrong.log.endswith("last line")
    assert rows["w-crash"].log.endswith("end")
    assert len(rows["w-crash"].log) <= 2000
    assert rows["w-events"].timer == "cuda-events"
    assert rows["w-missing"].status == "NO_TRACE"


@pytest.mark.parametrize("alias", ["gdn_decode", "gdn_prefill", "moe_fp8"])
def test_contest_flags_are_a_configuration_of_flashinfer_bench(alias: str) -> None:
    """Its own class accepts them, and keeps the tolerances of the definition."""
    definition = CATALOG.resolve(alias)
    solution = CATALOG.solution(definition, "torch-vectorized").solution
    flags = contest_flags(definition, solution, trials=2)
    script = (
        "import json, sys\nfrom flashinfer_bench.bench.config import BenchmarkConfig\n"
        "made = BenchmarkConfig(**json.loads(sys.argv[1]))\n"
        "names = ['warmup_runs', 'iterations', 'num_trials', 'atol', 'rtol', "
        "'required_matched_ratio', 'use_isolated_runner', 'profile_baseline']\n"
        "print(json.dumps({n: getattr(made, n) for n in names}))"
    )
    found = _fib(
        "import sys\ntry:\n    import flashinfer_bench.bench\nexcept ImportError as error:\n"
        "    import json; print(json.dumps({'skip': str(error)})); sys.exit()\n" + script,
        json.dumps(flags),
    )
    assert found == {name: flags[name] for name in found}
    assert found["num_trials"] == 2
    assert found["use_isolated_runner"]
    assert found["atol"] == definition.kopt.contest.atol


def test_contest_flags_of_prefill_are_fewer_calls() -> None:
    """As the contest has it: a long operator, one warm-up, five iterations, three trials."""
    definition = CATALOG.resolve("gdn_prefill")
    solution = CATALOG.solution(definition, "torch-vectorized").solution
    flags = contest_flags(definition, solution)
    assert (flags["warmup_runs"], flags["iterations"], flags["num_trials"]) == (1, 5, 3)


def test_an_interpreter_says_what_it_has() -> None:
    """Version, torch, device and timer; what it lacks is the reason."""
    bench = about_bench(_fib_python())
    assert bench.version
    assert bench.timer in ("cupti", "cuda-events", "none")
    assert bench.timer_note
    if bench.device is None:
        with pytest.raises(InfraError, match="CUDA devices only") as caught:
            require_runnable(bench)
        assert "--dataset-only" in caught.value.hint
        assert caught.value.exit_code == 3


def test_an_interpreter_without_the_package_is_named(tmp_path: Path) -> None:
    """And so is one that is not there."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(InfraError, match="flashinfer-bench is not installed") as caught:
        about_bench(str(bare))
    assert "--python" in caught.value.hint
    with pytest.raises(InfraError, match="cannot be started"):
        about_bench(str(tmp_path / "nothing"))
    bare.write_text("#!/bin/sh\necho broken >&2; exit 4\n")
    with pytest.raises(InfraError, match="failed: broken"):
        about_bench(str(bare))


def test_no_timer_is_a_reason_of_its_own() -> None:
    """The newest versions time with flashinfer, which they may lack."""
    lame = BENCH.model_copy(update={"timer": "none", "timer_note": "no flashinfer"})
    with pytest.raises(InfraError, match="cannot time: no flashinfer"):
        require_runnable(lame)
    require_runnable(BENCH)


def _both(statuses: list[str], verdicts: list[str], medians_us: list[float | None]) -> SideBySide:
    rows = [
        {
            "workload": {"uuid": f"workload-{number}"},
            "evaluation": {
                "status": status,
                "performance": {"latency_ms": 0.01} if status == "PASSED" else None,
            },
        }
        for number, status in enumerate(statuses)
    ]
    uuids = [f"workload-{number}" for number in range(len(statuses))]
    kopt = Evaluation.model_validate(
        {
            "solution": {"name": "s", "definition": "d", "sha256": "0" * 64},
            "target": "h200",
            "verdict": Verdict.combine(Verdict(v) for v in verdicts),
            "phase": "bench",
            "workloads": [
                {
                    "uuid": uuid,
                    "axes": {"n": 1},
                    "verdict": verdict,
                    "phase": "bench",
                    "trials": 1,
                    "tiers": {"strict": {"tier": "strict", "verdict": verdict}},
                    "timing": median and {"median_us": median, "timer": "cupti", "cache": "cold"},
                }
                for uuid, verdict, median in zip(uuids, verdicts, medians_us, strict=True)
            ],
        }
    )
    data = TraceSet(Path(), 1, tuple(uuids), 0)
    return SideBySide(BENCH, {}, data, read_traces(rows, uuids, "cupti"), kopt)


def test_both_results_stand_side_by_side() -> None:
    """One row a workload with verdict, timer and latency of each, and their ratio."""
    both = _both(["PASSED", "RUNTIME_ERROR"], ["pass", "pass"], [11.0, 5.0])
    first, second = both.document()["workloads"]
    assert first["official"]["status"] == "PASSED"
    assert (first["official"]["latency_us"], first["kopt"]["median_us"]) == (10.0, 11.0)
    assert (first["official"]["timer"], first["kopt"]["timer"]) == ("cupti", "cupti")
    assert first["ratio"] == pytest.approx(1.1)
    assert second["ratio"] is None
    assert not both.passed


def test_only_what_differs_is_pointed_out() -> None:
    """Verdicts that disagree, and latencies more than a tenth apart."""
    both = _both(["PASSED", "PASSED", "PASSED"], ["pass", "fail", "pass"], [10.5, None, 13.0])
    said = [text for text in both.differences() if text.startswith("workload")]
    assert said == [
        "workload workload-1: flashinfer-bench PASSED, kopt fail (strict fail)",
        "workload workload-2: kopt 13.00 us, flashinfer-bench 10.00 us, 1.30 times",
    ]
    assert "timer: flashinfer-bench cupti" in both.differences()[0]
