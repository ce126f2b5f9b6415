"""flashinfer-bench's side of ``kopt official``: a script for the interpreter that has it.

Needs the standard library and flashinfer-bench, nothing of kopt: it is copied into a folder and
run there as ``python SCRIPT REQUEST ANSWER``, for one of two jobs:

* ``about``: versions, whether there is a CUDA device, and which timer would be used;
* ``run``: ``Benchmark.run_all`` on a data set; the traces as flashinfer-bench writes them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

Request = dict[str, Any]


def main() -> None:
    """Does what the request says and writes the answer."""
    request: Request = json.loads(Path(sys.argv[1]).read_text())
    answer = {"about": about, "run": run}[request["job"]](request)
    Path(sys.argv[2]).write_text(json.dumps(answer))


def about(_: Request) -> Request:
    """What this interpreter has; ``missing`` names a package that it lacks."""
    try:
        distribution = importlib.metadata.distribution("flashinfer-bench")
        importlib.import_module("flashinfer_bench")
        torch = importlib.import_module("torch")
    except importlib.metadata.PackageNotFoundError:
        return {"missing": "flashinfer-bench"}
    except ModuleNotFoundError as error:
        return {"missing": error.name or str(error)}
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    gpu = bool(torch.cuda.is_available())
    return {
        "version": distribution.version,
        "commit": origin.get("vcs_info", {}).get("commit_id"),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "device": torch.cuda.get_device_name() if gpu else None,
        **_timer(),
    }


def _timer() -> Request:
    """The timer that this version times with, and how it sums up."""
    try:
        timing = importlib.import_module("flashinfer_bench.bench.timing")
    except ImportError as error:
        return {"timer": "none", "timer_note": f"its timer cannot be imported: {error}"}
    if not hasattr(timing, "bench_gpu_time_with_cupti"):
        note = "CUDA events; mean of the iterations; arguments are cloned after the cache flush"
        return {"timer": "cuda-events", "timer_note": note}
    try:
        importlib.import_module("cupti.cupti")
        cupti = importlib.metadata.version("cupti-python")
    except (ImportError, OSError) as error:
        note = f"falls back to CUDA events: {error}; median of the iterations"
        return {"timer": "cuda-events", "timer_note": note}
    if int(cupti.partition(".")[0]) < 13:  # what flashinfer.testing asks for
        note = f"falls back to CUDA events: cupti-python {cupti} is too old"
        return {"timer": "cuda-events", "timer_note": f"{note}; median of the iterations"}
    note = f"device spans by cupti-python {cupti}; median of the iterations"
    return {"timer": "cupti", "timer_note": note}


def run(request: Request) -> Request:
    """Benchmarks the one solution of the data set on all of its workloads."""
    data = importlib.import_module("flashinfer_bench.data")
    bench = importlib.import_module("flashinfer_bench.bench")
    config = importlib.import_module("flashinfer_bench.bench.config").BenchmarkConfig
    traces = data.TraceSet.from_path(request["root"])
    benchmark = bench.Benchmark(traces, config(**request["flags"]))
    try:
        found = benchmark.run_all(dump_traces=False).traces
    finally:
        benchmark.close()
    return {"traces": [t.model_dump(mode="json") for each in found.values() for t in each]}


if __name__ == "__main__":
    main()
