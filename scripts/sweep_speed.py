"""How long a sweep takes, and what flashinfer-bench needs for the same workloads.

kopt checks every workload and takes ``--calls`` timed calls of each, each of them checked, with
the build done before. Then the installed flashinfer-bench runs a sample of the workloads with its
isolated runner, the same calls and the same number of trials. Both times are wall time, with the
start of their processes. Not a test: shared machines are too noisy for one.

    python scripts/sweep_speed.py [--target h200] [--solution NAME] [--sample 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.evaluate import build, evaluate
from kopt_harness.export import write_trace_set
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.official_bench import about_bench, contest_flags, require_runnable, run_bench
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import Solution
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target


def main() -> None:
    """Runs both and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_decode")
    parser.add_argument("--target", default=None)
    parser.add_argument("--solution", default=None, help="default: the incumbent")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--sample", type=int, default=4, help="workloads for flashinfer-bench")
    parser.add_argument("--python", default=sys.executable, help="that has flashinfer-bench")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    options = MeasureOptions(trials=arguments.trials, bench_calls=arguments.calls)
    setting = Setting.here(catalog, arguments.target or best_target().name, options)
    definition = catalog.resolve(arguments.definition)
    solution = catalog.incumbent(definition, setting.target.name)
    if arguments.solution:
        solution = catalog.solution(definition, arguments.solution).solution
    if solution is None:
        raise SystemExit(f"{definition.name} has no incumbent on {setting.target.name}")
    found = ours(setting, solution)
    print(f"kopt: {found['verdict']}, {found['workloads']} workloads in {found['wall_s']:.1f} s")
    try:
        found |= theirs(setting, solution, arguments)
    except KoptError as error:
        print(f"flashinfer-bench: not run: {error.message}")
    else:
        ratio = found["official_s_a_workload"] * found["workloads"] / found["wall_s"]
        print(
            f"flashinfer-bench {found['official_version']} ({found['official_timer']}): "
            f"{found['official_s_a_workload']:.1f} s a workload; kopt is {ratio:.1f} times faster"
        )
        found["ratio"] = ratio
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def ours(setting: Setting, solution: Solution) -> dict[str, Any]:
    """All workloads, checked and timed, by fresh worker processes."""
    definition = setting.catalog.resolve(solution.definition)
    workloads = setting.catalog.workloads(definition)
    if not build(setting, solution).ok:
        raise SystemExit(f"{solution.name} does not build")
    with device_lease(setting.device_id):
        wall_s, evaluation = timed(
            lambda: evaluate(setting, solution, workloads, DictLedger(), timed=True)
        )
    return {
        "solution": solution.name,
        "sha256": solution.sha256,
        "environment": setting.environment,
        "verdict": evaluation.verdict.value,
        "workloads": len(evaluation.workloads),
        "calls": setting.options.bench_calls,
        "wall_s": wall_s,
        "median_us": {
            row.uuid: row.timing["median_us"] for row in evaluation.workloads if row.timing
        },
    }


def theirs(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> dict[str, Any]:
    """A sample of the workloads, spread over the definition, by flashinfer-bench."""
    catalog = setting.catalog
    definition = catalog.resolve(solution.definition)
    workloads = catalog.workloads(definition)
    sample = workloads[:: max(1, len(workloads) // arguments.sample)][: arguments.sample]
    variables = {n: os.environ[n] for n in ("PYTHONPATH",) if n in os.environ}
    bench = about_bench(arguments.python, variables)
    require_runnable(bench)
    flags = contest_flags(definition, solution, trials=arguments.trials)
    flags |= {"iterations": arguments.calls}
    with tempfile.TemporaryDirectory() as made:
        data = write_trace_set(
            catalog, definition, sample, Path(made) / "dataset", solution=solution
        )
        with device_lease(setting.device_id):
            wall_s, rows = timed(lambda: run_bench(bench, data, flags, variables))
    return {
        "official_version": bench.version,
        "official_timer": bench.timer,
        "official_flags": flags,
        "official_status": [row.status for row in rows],
        "official_us": [row.latency_us for row in rows],
        "official_wall_s": wall_s,
        "official_s_a_workload": wall_s / len(sample),
    }


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time in seconds, and the answer."""
    start = time.perf_counter()
    answer = act()
    return time.perf_counter() - start, answer


if __name__ == "__main__":
    main()
