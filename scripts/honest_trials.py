"""Are honest kernels ever rejected: many trials of the project's own solutions.

Every solution under ``kernels/`` that a target runs is replayed: on a CPU at least 20 trials on
each workload whose reference is fast, and 200 for each definition spread over its regimes; on a
GPU 200 for each regime. A false alarm is any verdict but ``pass``, and any flag. Nothing ends the
run but its budget; completed chunks are kept in a journal, so that it goes on where it stopped.

    python scripts/honest_trials.py --out-dir artifacts/local/honest [--target cpu]
        [--definition gdn_decode ...] [--budget-s 3000] [--resume]

A part of it, so that several run side by side: ``--solution NAME`` and, of the jobs of each
solution, ``--shard 1/2``.

The last line of standard output is the result as JSON; the table goes before it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.bench.detection import failure_rate_upper
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.journal import Journal
from kopt_harness.ledger import Ledger
from kopt_harness.options import MeasureOptions
from kopt_harness.replay import replay
from kopt_harness.root import find_root
from kopt_harness.schema import Definition, Solution, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target, runs_on
from kopt_harness.trials import Replay
from kopt_harness.watched import WatchedSession

FAST_REFERENCE_S = 0.05
"""References up to this time are tried on every workload."""
EACH = 20
"""Trials on each of those workloads, by each solution."""
SPREAD = 200
"""Trials over the regimes of a definition on a CPU; on each regime on a GPU."""


class Job(NamedTuple):
    """One replay."""

    name: str
    workloads: tuple[Workload, ...]
    trials: int


class Run:
    """What all definitions share."""

    def __init__(self, setting: Setting, ledger: Ledger, arguments: argparse.Namespace) -> None:
        self.setting = setting
        self.ledger = ledger
        self.end = time.monotonic() + arguments.budget_s
        self.solutions: list[str] | None = arguments.solution
        self.part, self.parts = (int(word) for word in arguments.shard.split("/"))
        self.rows: list[dict[str, Any]] = []

    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self.end

    def definition(self, definition: Definition) -> None:
        """Every solution of it that the target runs."""
        catalog, target = self.setting.catalog, self.setting.target
        for name in catalog.solution_names(definition):
            if self.solutions is not None and name not in self.solutions:
                continue
            solution = catalog.solution(definition, name).solution
            if runs_on(solution, target):
                self._solution(definition, solution)

    def _solution(self, definition: Definition, solution: Solution) -> None:
        workloads = self.setting.catalog.workloads(definition)
        started = time.monotonic()
        done: list[Replay] = []
        errors: list[str] = []
        missing = []
        for job in list(self._jobs(definition))[self.part - 1 :: self.parts]:
            if self.is_over():
                missing.append(job.name)
                continue
            try:
                # A session for each job: its arena is as large as the job needs.
                chosen = [w for w in workloads if w in job.workloads]
                with WatchedSession(self.setting, definition, chosen) as session:
                    result = replay(
                        self.setting,
                        solution,
                        chosen,
                        self.ledger.scoped(job.name),
                        trials=job.trials,
                        session=session,
                        is_over=self.is_over,
                    )
            except KoptError as error:
                # What the machine lacks, or lost: said in the result, and no false alarm.
                errors.append(f"{job.name}: {error.message}")
                continue
            done.append(result)
            if len(result.trials) < job.trials:
                missing.append(job.name)
        row = summary(definition, solution, done) | {"missing": missing, "errors": errors}
        row["seconds"] = round(time.monotonic() - started, 1)
        self.rows.append(row)
        show(row)

    def _jobs(self, definition: Definition) -> Iterator[Job]:
        catalog = self.setting.catalog
        # Regimes are what a definition is promoted by; a CPU takes the cheapest of each.
        if self.setting.target.kind != "cpu":
            for regime in catalog.regime_list(definition):
                yield Job(f"regime {regime.name}", regime.workloads, SPREAD)
            return
        fast = self._fast(definition)
        if fast:
            yield Job("fast", tuple(fast), EACH * len(fast))
        cheapest = [
            min(regime.workloads, key=lambda w: catalog.cost(definition, w.axes).flops)
            for regime in catalog.regime_list(definition)
        ]
        yield Job("regimes", tuple(cheapest), SPREAD)

    def _fast(self, definition: Definition) -> list[Workload]:
        """Workloads whose reference takes less than 50 ms here, by processor time, kept."""
        workloads = self.setting.catalog.workloads(definition)
        key = f"reference-cpu/{definition.name}"
        known = self.ledger.get(key)
        if known is None:
            known = reference_times(self.setting, definition, workloads)
            self.ledger.put(key, known)
        return [w for w in workloads if known.get(w.uuid, 1e9) <= FAST_REFERENCE_S]


def reference_times(
    setting: Setting, definition: Definition, workloads: list[Workload]
) -> dict[str, Any]:
    """Processor seconds of the reference on a typical set, cheapest first, until too long."""
    found: dict[str, Any] = {}
    ordered = sorted(workloads, key=lambda w: setting.catalog.cost(definition, w.axes).flops)
    too_slow = 0
    with WatchedSession(setting, definition, workloads) as session:
        for workload in ordered:
            session.renew()
            session.bind(workload)
            taken_ns = min(_reference_ns(session) for _ in range(3))
            found[workload.uuid] = taken_ns / 1e9
            too_slow += found[workload.uuid] > 4 * FAST_REFERENCE_S
            if too_slow >= 2:
                break
    return found


def _reference_ns(session: WatchedSession) -> int:
    """What a set takes with its reference, less what drawing alone takes."""
    first = next(iter(session.generators))
    readings = [session.judge_cpu_ns()]
    for reference in (False, True):
        session.fresh_set(first, reference=reference)
        readings.append(session.judge_cpu_ns())
    start, drawn, end = readings
    return max(0, (end - drawn) - (drawn - start))


def summary(definition: Definition, solution: Solution, done: list[Replay]) -> dict[str, Any]:
    """Counts over the replays of one solution."""
    trials = sum(len(replay.trials) for replay in done)
    failures = [failure for replay in done for failure in replay.failures]
    flags = [flag for replay in done for flag in replay.evaluation.flags]
    verdicts = [replay.evaluation.verdict.value for replay in done if replay.trials]
    rejected = [verdict for verdict in verdicts if verdict != "pass"]
    used = {workload.uuid for replay in done for workload, _ in replay.trials}
    return {
        "definition": definition.kopt.alias,
        "solution": solution.name,
        "sha256": solution.sha256,
        "workloads": len(used),
        "trials": trials,
        "distinct": sum(replay.distinct for replay in done),
        "false_alarms": max(len(failures), len(rejected)) + len(flags),
        "verdicts": verdicts,
        "flags": [flag.model_dump(mode="json") for flag in flags],
        "failures": [failure.model_dump(mode="json") for failure in failures],
        "p_upper_95": failure_rate_upper(trials, len(failures)),
    }


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    words = [row["definition"], row["solution"], row["workloads"], row["trials"], row["distinct"]]
    end = [row["false_alarms"], f"{row['p_upper_95']:.2%}", f"{row['seconds']:.0f} s"]
    rest = ["incomplete"] * bool(row["missing"] or row["errors"])
    print(*(f"{word!s:>18}" for word in (*words, *end, *rest)), flush=True)


def main() -> None:
    """Runs what the journal does not have, and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=None, help="default: the best one here")
    parser.add_argument("--definition", action="append", default=None, help="default: all")
    parser.add_argument("--solution", action="append", default=None, help="default: all")
    parser.add_argument("--shard", default="1/1", help="which part of how many")
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the journal")
    parser.add_argument("--budget-s", type=float, default=float("inf"))
    parser.add_argument("--resume", action="store_true", help="go on with the journal there")
    arguments = parser.parse_args()
    path = arguments.out_dir / "journal.jsonl"
    if path.is_file() != arguments.resume:
        raise SystemExit(f"{path}: give --resume exactly where there is a journal already")
    catalog = Catalog(find_root())
    setting = Setting.here(catalog, arguments.target or best_target().name, MeasureOptions())
    chosen = [catalog.resolve(name) for name in arguments.definition or ()]
    heads = ("definition", "solution", "workloads", "trials", "distinct", "false alarms")
    print(*(f"{head:>18}" for head in (*heads, "p upper 95 %", "took")), flush=True)
    with Journal(path) as journal:
        run = Run(setting, journal.scoped(setting.environment["epoch"]), arguments)
        for definition in chosen or catalog.definitions():
            run.definition(definition)
    whole = {
        "target": setting.target.name,
        "environment": setting.environment,
        "trials": sum(row["trials"] for row in run.rows),
        "false_alarms": sum(row["false_alarms"] for row in run.rows),
        "complete": not any(row["missing"] or row["errors"] for row in run.rows),
        "solutions": run.rows,
    }
    print(json.dumps(whole))


if __name__ == "__main__":
    main()
