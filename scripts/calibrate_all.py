"""Calibrates every workload of every definition, and goes on where it was stopped.

Journals are kept under ``artifacts/local/calibrations/all/``; completed pairs of workload
and generator are not run again unless the definition has changed since. One JSON line for
each workload goes to ``--jsonl``, one line of text to stdout. For a long run beside other work:

    OMP_NUM_THREADS=1 nice -n 19 python scripts/calibrate_all.py --jsonl all.jsonl

Options choose definitions, the target and the root, and with ``--shard 1/4`` every fourth workload,
so that several run side by side: what it costs is mostly one processor, on a GPU too. The last
line is the count of workloads by verdict. The table of docs/calibration.md is made of the JSON
lines, finished or not:

    python scripts/calibrate_all.py --summarise all.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from kopt_harness.calibrate import Calibration, WorkloadCalibration, calibrate
from kopt_harness.catalog import Catalog
from kopt_harness.journal import Journal
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import Definition, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target


def main() -> None:
    """Runs what is not complete yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", action="append", help="default: all of them")
    parser.add_argument("--target", default=None)
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--jsonl", type=Path, default=None, help="a line for each workload")
    parser.add_argument("--shard", default="1/1", help="which part of how many")
    parser.add_argument("--skip", type=Path, default=None, help="JSON lines of what is complete")
    parser.add_argument("--summarise", type=Path, default=None, help="run nothing, print a table")
    arguments = parser.parse_args()
    if arguments.summarise is not None:
        summarise(arguments.summarise)
        return
    catalog = Catalog(find_root(arguments.root))
    setting = Setting.here(catalog, arguments.target or best_target().name, MeasureOptions())
    names = arguments.definition
    definitions = [catalog.resolve(n) for n in names] if names else catalog.definitions()
    verdicts: Counter[str] = Counter()
    for definition in definitions:
        verdicts += run(setting, definition, arguments)
    print(dict(verdicts), flush=True)


def run(setting: Setting, definition: Definition, arguments: argparse.Namespace) -> Counter[str]:
    """One definition, smallest workloads first, so that a fault shows early."""
    catalog, jsonl = setting.catalog, arguments.jsonl
    known = set()
    if arguments.skip is not None:
        known = {json.loads(line)["uuid"] for line in arguments.skip.read_text().splitlines()}
    part, parts = (int(word) for word in arguments.shard.split("/"))
    workloads = sorted(
        (w for w in catalog.workloads(definition) if w.uuid not in known),
        key=lambda w: catalog.cost(definition, w.axes).bytes,
    )[part - 1 :: parts]
    name = definition.kopt.alias + (f"-{part}-of-{parts}" if parts > 1 else "")
    place = catalog.root.local / "calibrations" / "all" / f"{name}.jsonl"
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


def summarise(jsonl: Path) -> None:
    """One line of Markdown a definition; of a workload that was run again the last run counts."""
    found: dict[str, dict[str, WorkloadCalibration]] = {}
    for line in jsonl.read_text().splitlines():
        data = json.loads(line)
        name = data.pop("definition")
        workload = WorkloadCalibration.model_validate(data)
        found.setdefault(name, {})[workload.uuid] = workload
    print("| definition | workloads | valid | generators | recognised | not applicable | passed |")
    print("|---|---|---|---|---|---|---|")
    for name, by_uuid in found.items():
        workloads = by_uuid.values()
        codes = [reason.code for each in workloads for reason in each.reasons]
        cells = [
            name,
            len(workloads),
            sum(each.verdict is Verdict.PASS for each in workloads),
            len({g.generator for each in workloads for g in each.generators}),
            sum(each.count("strict", "fail") for each in workloads),
            sum(each.count("strict", "not-applicable") for each in workloads),
            codes.count("null-kernel-passes"),
        ]
        print("|", " | ".join(map(str, cells)), "|")
    for name, by_uuid in found.items():
        explain(name, tuple(by_uuid.values()))


def explain(name: str, workloads: tuple[WorkloadCalibration, ...]) -> None:
    """What passed, what was invalid, and what it cost."""
    whole = Calibration(definition=name, target="", verdict=Verdict.PASS, workloads=workloads)
    runs = [generator for each in workloads for generator in each.generators]
    print(f"\n{name}: {sum(run.wall_s for run in runs):.0f} s in all,", end=" ")
    print(f"the slowest reference {max(run.reference_s for run in runs):.2f} s")
    print(f"  precision: {', '.join(whole.precision()) or 'none'}")
    print(f"  contest accepts: {', '.join(whole.contest_accepts()) or 'none'}")
    for each in workloads:
        for reason in each.reasons:
            print(f"  {each.uuid}: {reason.code}: {reason.detail}")


if __name__ == "__main__":
    main()
