"""Calibrates every workload of every definition, and goes on where it was stopped.

Journals are kept under ``artifacts/local/calibrations/all/``; completed pairs of workload
and generator are not run again unless the definition has changed since. One JSON line for
each workload goes to ``--jsonl``, one line of text to stdout. For a long run beside other work:

    OMP_NUM_THREADS=1 nice -n 19 python scripts/calibrate_all.py --jsonl all.jsonl

Options choose definitions, the target and the root. The last line is the count of workloads
by verdict.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from kopt_harness.calibrate import WorkloadCalibration, calibrate
from kopt_harness.catalog import Catalog
from kopt_harness.journal import Journal
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import Definition, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target


def main() -> None:
    """Runs what is not complete yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", action="append", help="default: all of them")
    parser.add_argument("--target", default=None)
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--jsonl", type=Path, default=None, help="a line for each workload")
    arguments = parser.parse_args()
    catalog = Catalog(find_root(arguments.root))
    setting = Setting.here(catalog, arguments.target or best_target().name, MeasureOptions())
    names = arguments.definition
    definitions = [catalog.resolve(n) for n in names] if names else catalog.definitions()
    verdicts: Counter[str] = Counter()
    for definition in definitions:
        verdicts += run(setting, definition, arguments.jsonl)
    print(dict(verdicts), flush=True)


def run(setting: Setting, definition: Definition, jsonl: Path | None) -> Counter[str]:
    """One definition, smallest workloads first, so that a fault shows early."""
    catalog = setting.catalog
    workloads = sorted(
        catalog.workloads(definition), key=lambda w: catalog.cost(definition, w.axes).bytes
    )
    place = catalog.root.local / "calibrations" / "all" / f"{definition.kopt.alias}.jsonl"
    verdicts: Counter[str] = Counter()
    start = time.monotonic()

    def report(workload: Workload, found: WorkloadCalibration) -> None:
        verdicts[found.verdict.value] += 1
        alias = definition.kopt.alias
        counts = f"{found.count('strict', 'fail')} recognised, {found.count('strict', 'pass')} not"
        print(
            f"{alias} {workload.index} {workload.axes} {found.verdict.value}: {counts}, "
            f"{time.monotonic() - start:.0f} s so far",
            *(f"  {reason.code}: {reason.detail}" for reason in found.reasons),
            sep="\n",
            flush=True,
        )
        if jsonl is not None:
            with jsonl.open("a") as stream:
                line = {"definition": definition.name, **found.model_dump(mode="json")}
                stream.write(json.dumps(line) + "\n")

    with Journal(place) as journal:
        ledger = journal.scoped(f"{setting.target.name}/{setting.environment['epoch']}")
        calibrate(setting, definition, workloads, ledger, progress=report)
    return verdicts


if __name__ == "__main__":
    main()
