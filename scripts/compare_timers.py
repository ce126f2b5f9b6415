"""One solution by three timers: kopt's, ncu's, and FlashInfer's own by CUPTI.

On each workload: the median span of ``kopt bench``; what ``ncu`` reports of the same kernels, as a
promotion asks for it (``kopt_harness.confirm``); and, in a process of its own without any of kopt's
workers, ``flashinfer.testing.bench_gpu_time_with_cupti`` with a cold L2 on inputs of the same
generator, three sets in turn. Times agree within the larger of 5 % and 0.5 us, or are marked.

    python scripts/compare_timers.py --target h200 --solution cuda-recurrent
        [--definition gdn_decode] [--workload INDEX ...] [--calls 100] [--json FILE]

FlashInfer's timer falls back to events without saying so in its result where cupti-python is
missing; here that is an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kopt_harness.build.loading import load
from kopt_harness.catalog import Catalog
from kopt_harness.confirm import confirm
from kopt_harness.evaluate import build, evaluate
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import Solution, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target
from kopt_harness.worker.pool import Pool

SHARE = 0.05
SLACK_US = 0.5
SETS = 3


def main() -> None:
    """Times by all three and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_decode")
    parser.add_argument("--solution", default="cuda-recurrent")
    parser.add_argument("--target", default=None)
    parser.add_argument("--workload", type=int, nargs="*", default=[0, 12, 24, 36, 48])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--built", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    definition = catalog.resolve(arguments.definition)
    solution = catalog.solution(definition, arguments.solution).solution
    workloads = [catalog.workloads(definition)[index] for index in arguments.workload]
    if arguments.built is not None:
        print(json.dumps(theirs(catalog, solution, arguments.built, workloads, arguments.calls)))
        return
    options = MeasureOptions(bench_calls=arguments.calls)
    setting = Setting.here(catalog, arguments.target or best_target().name, options)
    built = build(setting, solution)
    if not built.ok:
        raise SystemExit(f"{solution.name} does not build: {built.log}")
    with device_lease(setting.device_id):
        ours = evaluate(setting, solution, workloads, DictLedger(), timed=True)
        argv = [sys.executable, __file__, *sys.argv[1:], "--built", str(built.path)]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"FlashInfer's timer failed:\n{ran.stderr[-3000:]}")
    flashinfer = json.loads(ran.stdout.splitlines()[-1])
    profiled = confirm(setting, solution, built, workloads)
    external = {row.uuid: row for row in profiled.workloads}
    rows = []
    for timed in ours.workloads:
        seen = external.get(timed.uuid)
        row = {
            "axes": timed.axes,
            "kopt_us": timed.timing["median_us"] if timed.timing else None,
            "flashinfer_us": flashinfer["median_us"].get(timed.uuid),
            "ncu_us": seen.external_us if seen else None,
            "ncu_raw_us": seen.external_raw_us if seen else None,
            "kopt_kernels_us": seen.claimed_busy_us if seen else None,
        }
        row["agree"] = agree(row["kopt_us"], row["flashinfer_us"])
        row["ncu_agrees"] = agree(row["kopt_kernels_us"], row["ncu_us"])
        rows.append(row)
    found = {
        "solution": solution.name,
        "sha256": solution.sha256,
        "verdict": ours.verdict.value,
        "calls": arguments.calls,
        "environment": setting.environment,
        "flashinfer": flashinfer["version"],
        "cupti": flashinfer["cupti"],
        "ncu": profiled.version,
        "ncu_outcome": profiled.outcome,
        "ncu_reason": profiled.reason,
        "workloads": rows,
    }
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def agree(one: float | None, other: float | None) -> bool | None:
    """Within the larger of 5 % and half a microsecond; None where one is missing."""
    if one is None or other is None:
        return None
    return abs(one - other) <= max(SHARE * min(one, other), SLACK_US)


def theirs(
    catalog: Catalog, solution: Solution, built: Path, workloads: list[Workload], calls: int
) -> dict[str, Any]:
    """FlashInfer's timer on the built solution; inputs are drawn as a judge draws them."""
    torch = importlib.import_module("torch")
    timer = importlib.import_module("flashinfer.testing").bench_gpu_time_with_cupti
    definition = catalog.resolve(solution.definition)
    pool = Pool(catalog.folder(definition), definition, "cuda", None)
    function = load(built, solution)
    medians = {}
    for workload in workloads:
        pool.bind(workload.uuid, workload.axes)
        first = next(iter(pool.generators))
        sets = [pool.sets[pool.draw(first)].values for _ in range(SETS)]
        bound = definition.output_shapes(workload.axes)
        outputs = [
            torch.full(each.shape, float("nan"), dtype=getattr(torch, each.dtype), device="cuda")
            for each in bound
        ]
        placed = outputs if solution.spec.destination_passing_style else []
        turn = iter(range(1 << 30))

        def call(sets: Any = sets, placed: Any = placed, turn: Any = turn) -> None:
            function(*sets[next(turn) % SETS].values(), *placed)

        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # it would time by events
            found = timer(call, dry_run_iters=10, repeat_iters=calls, cold_l2_cache=True)
        medians[workload.uuid] = statistics.median(found) * 1e3
    return {
        "median_us": medians,
        "version": version("flashinfer-python"),
        "cupti": version("cupti-python"),
    }


if __name__ == "__main__":
    main()
