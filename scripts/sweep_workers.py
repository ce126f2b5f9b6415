"""How much two workers, and references that are kept, save of a sweep without timing.

Three sweeps of the same workloads, each a ``kopt sweep --correctness-only`` of its own: one worker
and new inputs only, two workers and new inputs only, and one worker once more by a solution that
finds the input sets of the one before. They are taken in turn, round after round, so that what
else the machine does falls on all of them alike; the ratios are those of the sums. Builds are
done before.

    python scripts/sweep_workers.py [--definition gdn_prefill] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kopt_harness.root import find_root


def main() -> None:
    """Runs them in turn and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_prefill")
    parser.add_argument("--solution", default="cpp-chunked")
    parser.add_argument("--workload", default="all")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {"one": [], "several": [], "first": [], "second": []}
    with tempfile.TemporaryDirectory(prefix="kopt-sweeps-") as made:
        folder = scratch(Path(made))
        solution = find(folder, arguments.definition, arguments.solution)
        sweep(folder, solution, arguments, "--fresh-inputs", workload="0")
        for _ in range(arguments.rounds):
            taken["one"].append(sweep(folder, solution, arguments, "--fresh-inputs"))
            several = ("--fresh-inputs", "--workers", str(arguments.workers))
            taken["several"].append(sweep(folder, solution, arguments, *several))
            shutil.rmtree(folder / "artifacts/local/judge", ignore_errors=True)
            taken["first"].append(sweep(folder, solution, arguments))
            taken["second"].append(sweep(folder, solution, arguments))
            print({name: [round(s, 1) for s in seconds] for name, seconds in taken.items()})
    sums = {name: sum(seconds) for name, seconds in taken.items()}
    found: dict[str, Any] = {
        "definition": arguments.definition,
        "solution": arguments.solution,
        "workload": arguments.workload,
        "processors": len(os.sched_getaffinity(0)),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "seconds": taken,
        f"workers_{arguments.workers}_ratio": sums["one"] / sums["several"],
        "second_ratio": sums["first"] / sums["second"],
    }
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def scratch(folder: Path) -> Path:
    """A root of its own, with the definitions of this one."""
    root = find_root().path
    for name in ("kernels", "configs"):
        (folder / name).symlink_to(root / name)
    return folder


def find(folder: Path, definition: str, name: str) -> Path:
    """The folder of a solution."""
    found = list(folder.glob(f"kernels/{definition}*/solutions/{name}"))
    if len(found) != 1:
        raise SystemExit(f"{definition} has no solution {name!r}")
    return found[0]


def sweep(
    folder: Path,
    solution: Path,
    arguments: argparse.Namespace,
    *options: str,
    workload: str | None = None,
) -> float:
    """Seconds that a sweep takes, from the start of the program to its end."""
    argv = [sys.executable, "-m", "kopt_controller", "--root", str(folder), "sweep", str(solution)]
    argv += ["--correctness-only", "--target", arguments.target, *options]
    argv += ["--workload", workload or arguments.workload, "--json"]
    start = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.decode()}")
    return seconds


if __name__ == "__main__":
    main()
