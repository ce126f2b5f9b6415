"""How much processes of one and the same solution differ, all of them alive at the same time.

What: some twins of a solution (the same code under other hashes) take turns, in random order, on
one workload of each shape; printed is the median of each. Where the rows differ by more than calls
of one process do, a comparison needs several processes: see docs/measurement.md, Rounds.
When: on a new kind of machine, or after a change to how processes are made.
How: python scripts/process_spread.py [--definition gdn_decode] [--solution NAME] [--target h200]
         [--processes 6] [--budget-s 30]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import build
from kopt_harness.lease import device_lease
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import Definition, Solution, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target
from kopt_harness.timed import TimedCalls
from kopt_harness.variants import twin

CALLS = 3
"""In a turn."""
TURNS = 4


def main() -> None:
    """Prints a row for each shape, until the budget is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_decode")
    parser.add_argument("--solution", default=None, help="default: the incumbent")
    parser.add_argument("--target", default=None)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--budget-s", type=float, default=30.0)
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    setting = Setting.here(catalog, arguments.target or best_target().name, MeasureOptions())
    definition = catalog.resolve(arguments.definition)
    first = catalog.incumbent(definition, setting.target.name)
    if arguments.solution:
        first = catalog.solution(definition, arguments.solution).solution
    if first is None:
        raise SystemExit(f"{definition.name} has no incumbent on {setting.target.name}")
    twins = [first]
    while len(twins) < arguments.processes:
        twins.append(twin(twins[-1]))
    shapes = {tuple(w.axes.items()): w for w in catalog.workloads(definition)}
    over = time.monotonic() + arguments.budget_s
    while time.monotonic() < over:
        measure(setting, definition, twins, list(shapes.values()))


def measure(
    setting: Setting, definition: Definition, twins: list[Solution], workloads: list[Workload]
) -> None:
    """Processes that are new, once over all shapes."""
    built = {each.sha256: build(setting, each).path for each in twins}
    with Session(setting, definition, workloads) as session, device_lease(setting.device_id):
        for each in twins:
            session.open(each, built[each.sha256])
        for workload in workloads:
            session.bind(workload)
            calls = TimedCalls(setting, session, workload)
            number = session.sets(next(iter(session.generators)), 1)[0]
            for each in twins:
                session.call(each.sha256, number, phase="check", timed=False, full=False)
            times: dict[str, list[int]] = {each.sha256: [] for each in twins}
            for _ in range(TURNS):
                numbers = calls.sets(CALLS)
                for each in random.sample(twins, len(twins)):
                    times[each.sha256] += calls.slot(each.sha256, CALLS, numbers=numbers)
            row = " ".join(f"{statistics.median(times[t.sha256]) / 1e3:9.2f}" for t in twins)
            print(f"{workload.axes} {row} us", flush=True)


if __name__ == "__main__":
    main()
