"""Where the wall time of a warm sweep goes, by phase.

A sweep is run once to build and to warm up, then again with new input sets while the
workers stay warm, and the second is reported: phases as judge and candidate count them,
and the rest, which is orchestration. Not a test: shared machines are too noisy for one.

    python scripts/sweep_phases.py [--definition gdn_decode] [--target cpu] [--solution NAME]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from kopt_harness.catalog import Catalog
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.targets import best_target

JUDGING = ("refill", "poison", "compare", "hash")
VARIED = (*JUDGING, "vary")
"""Also what makes the contents of a set new."""


def main() -> None:
    """Runs both sweeps and prints the split of the second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_decode")
    parser.add_argument("--target", default=None)
    parser.add_argument("--solution", default=None, help="default: the incumbent, alone")
    parser.add_argument("--workloads", default="all")
    parser.add_argument("--json", type=Path, default=None, help="also write the numbers here")
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    target = arguments.target or best_target().name
    setting = Setting.here(catalog, target, MeasureOptions())
    definition = catalog.resolve(arguments.definition)
    incumbent = catalog.incumbent(definition, target)
    if incumbent is None:
        raise SystemExit(f"{definition.name} has no incumbent on {target}")
    candidate = incumbent
    if arguments.solution:
        candidate = catalog.solution(definition, arguments.solution).solution
    workloads = catalog.select(definition, [arguments.workloads])
    with Session(setting, definition, workloads) as session:
        warm_up = catalog.select(definition, ["rep"])
        sweep(setting, candidate, incumbent, warm_up, DictLedger(), session=session)
        before = session.phases_ns
        start_ns = time.perf_counter_ns()
        result = sweep(setting, candidate, incumbent, workloads, DictLedger(), session=session)
        wall_ns = time.perf_counter_ns() - start_ns
        phases = {n: ns - before.get(n, 0) for n, ns in session.phases_ns.items()}
    report(candidate.name, result.evaluation.verdict.value, wall_ns, phases)
    if arguments.json:
        arguments.json.write_text(json.dumps({"wall_ns": wall_ns, "phases_ns": phases}))


def report(name: str, verdict: str, wall_ns: int, phases: dict[str, int]) -> None:
    """One line a phase, with its share of the wall time."""
    known_ns = sum(phases.values())
    print(f"warm sweep of {name}: {verdict}, {wall_ns / 1e9:.2f} s wall")
    rows = sorted(phases.items(), key=lambda row: -row[1])
    for phase, ns in [*rows, ("orchestration", wall_ns - known_ns)]:
        print(f"  {phase:14s} {ns / 1e9:8.2f} s  {ns / wall_ns:6.1%}")
    for chosen in (JUDGING, VARIED):
        judging_ns = sum(phases.get(phase, 0) for phase in chosen)
        print(f"  {'+'.join(chosen)}: {judging_ns / wall_ns:.1%}")


if __name__ == "__main__":
    main()
