"""The side of FlashInfer-Bench in scripts/compare_with_flashinfer_bench.py, which starts it.

It runs under the interpreter that has flashinfer-bench and reads what to do from a JSON file:

* ``prepare``: draws inputs of a workload with kopt's generator and writes them as the
  package's data set, so that both sides see the same distribution;
* ``solution``: evaluates one solution of that data set;
* ``outputs``: asks evaluators and kopt about the same wrong outputs (scripts/wrong_outputs.py).

The package is used as installed. Where there is a GPU, ``Benchmark.run_all`` does everything.
On a CPU the package cannot time, and its evaluators wait for a CUDA device after each call; so
``torch.cuda.synchronize`` becomes a function that returns, and ``build_baseline`` without
profiling, ``BuilderRegistry.build`` and the evaluator's ``check_correctness`` are called.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

Request = dict[str, Any]
CPU_CALLS = "build_baseline (no profile), BuilderRegistry.build, check_correctness"
GPU_CALLS = "Benchmark.run_all with the isolated runner"


def main() -> None:
    """Does what the request says and writes the answer where it says."""
    request: Request = json.loads(Path(sys.argv[1]).read_text())
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *_: None
    jobs = {"about": about, "prepare": prepare, "solution": solution, "outputs": outputs}
    answer = jobs[request["job"]](request)
    Path(request["answer"]).write_text(json.dumps(answer))


def about(_: Request) -> Request:
    """Versions, and how far the package goes on this machine."""
    gpu = torch.cuda.is_available()
    distribution = importlib.metadata.distribution("flashinfer-bench")
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return {
        "version": distribution.version,
        "commit": origin.get("vcs_info", {}).get("commit_id"),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "calls": GPU_CALLS if gpu else CPU_CALLS,
    }


def prepare(request: Request) -> Request:
    """Writes the inputs of one workload and the workload that names them."""
    save_file = importlib.import_module("safetensors.torch").save_file
    root, name = Path(request["root"]), request["definition"]
    spec = importlib.util.spec_from_file_location("inputs", request["inputs"])
    if spec is None or spec.loader is None:
        raise SystemExit(f"{request['inputs']} cannot be loaded")
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    rng, axes = torch.Generator().manual_seed(request["seed"]), request["bound"]
    generator = next(iter(source.GENERATORS.values()))
    if hasattr(source, "draw_static"):
        static = source.draw_static(axes, rng)
        drawn = static | generator.draw(axes, rng, static=static)
    else:
        drawn = generator.draw(axes, rng)
    tensors = {key: value for key, value in drawn.items() if isinstance(value, torch.Tensor)}
    blob = f"blob/{name}.safetensors"
    (root / "blob").mkdir(exist_ok=True)
    save_file(tensors, root / blob)
    inputs = {
        key: {"type": "safetensors", "path": blob, "tensor_key": key}
        if key in tensors
        else {"type": "scalar", "value": value}
        for key, value in drawn.items()
    }
    workload = {"uuid": request["uuid"], "axes": request["axes"], "inputs": inputs}
    path = root / "workloads" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"definition": name, "workload": workload}) + "\n")
    return {}


def _configuration(tolerance: Request) -> Any:
    """The tolerances of the contest for a definition; the rest as the package has it."""
    config = importlib.import_module("flashinfer_bench.bench.config").BenchmarkConfig
    return config(use_isolated_runner=True, profile_baseline=False, **tolerance)


def solution(request: Request) -> Request:
    """Evaluates the one solution of the data set."""
    data = importlib.import_module("flashinfer_bench.data")
    traces = data.TraceSet.from_path(request["root"])
    config = _configuration(request["tolerance"])
    if torch.cuda.is_available():
        return _benchmark(traces, config)
    name = request["definition"]
    definition, chosen = traces.definitions[name], traces.solutions[name][0]
    workload = traces.workloads[name][0].workload
    resolved = _resolved(config, definition)
    evaluators = importlib.import_module("flashinfer_bench.bench.evaluators")
    evaluator = evaluators.resolve_evaluator(definition)
    baseline = evaluator.build_baseline(definition, workload, resolved, "cpu", traces.root)
    compiler = importlib.import_module("flashinfer_bench.compile")
    registry = compiler.BuilderRegistry.get_instance()
    try:
        runnable = registry.build(definition, chosen)
    except compiler.BuildError:
        return {"status": "COMPILE_ERROR"}
    lent = [
        [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        for inputs in baseline.inputs
    ]
    return _correctness(definition, runnable, lent, baseline.outputs, resolved)


def _benchmark(traces: Any, config: Any) -> Request:
    """The whole of it, timing included."""
    benchmark = importlib.import_module("flashinfer_bench.bench").Benchmark(traces, config)
    try:
        found = benchmark.run_all(dump_traces=False).traces
    finally:
        benchmark.close()
    evaluations = [trace.evaluation for traces in found.values() for trace in traces]
    if not evaluations:
        return {"status": "no trace"}
    (evaluation,) = evaluations
    performance = evaluation.performance
    latency_us = performance.latency_ms * 1e3 if performance else None
    return {"status": evaluation.status.value, "latency_us": latency_us}


def _resolved(config: Any, definition: Any) -> Any:
    """What an evaluator reads; older versions hand it the whole configuration."""
    resolve = getattr(config, "resolve_eval_config", None)
    return resolve(definition) if resolve else config


def _correctness(
    definition: Any, runnable: Any, inputs: Any, expected: Any, config: Any
) -> Request:
    evaluators = importlib.import_module("flashinfer_bench.bench.evaluators")
    evaluator = evaluators.resolve_evaluator(definition)
    _, refused = evaluator.check_correctness(
        definition, runnable, inputs, expected, config, "", "cpu"
    )
    status = "PASSED" if refused is None else refused.status.value
    return {"status": status}


def outputs(request: Request) -> Request:
    """Each wrong output under the package's evaluator and under kopt's two tiers."""
    sys.path[:0] = request["paths"]
    wrong_outputs = importlib.import_module("wrong_outputs")
    model = importlib.import_module("flashinfer_bench.data").Definition
    rows: list[Request] = []
    for wrong in wrong_outputs.WRONG_OUTPUTS:
        definition = model.model_validate(request["definitions"][wrong.definition])
        made = wrong_outputs.call(wrong)
        actual = wrong.spoil(made)
        tiers = wrong_outputs.judge(made, actual)
        config = _resolved(_configuration(request["tolerances"][wrong.definition]), definition)

        def returns(*_: Any, actual: Any = actual) -> Any:
            values = tuple(actual.values())
            return values if len(values) > 1 else values[0]

        returns.metadata = SimpleNamespace(destination_passing_style=False)  # type: ignore[attr-defined]
        official = _correctness(
            definition,
            returns,
            [list(made.inputs.values())],
            [list(made.declared().values())],
            config,
        )
        rows.append(
            {
                "id": wrong.id,
                "what": wrong.what,
                "alias": made.definition.kopt.alias,
                "status": official["status"],
                "contest": tiers.contest,
                "strict": tiers.strict,
                "code": tiers.strict_reason.code if tiers.strict_reason else "",
            }
        )
    return {"rows": rows}


if __name__ == "__main__":
    main()
