"""The installed flashinfer-bench and kopt on the same solution and inputs, side by side.

A data set is written (``export``), flashinfer-bench runs on it (``official_bench``), and kopt
checks and times the solution on the inputs of that data set.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.catalog import Catalog
from kopt_harness.errors import InfraError, UnavailableError
from kopt_harness.evaluate import evaluate
from kopt_harness.export import TraceSet, write_trace_set
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.official_bench import (
    Bench,
    OfficialRow,
    contest_flags,
    require_runnable,
    run_bench,
)
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Evaluation, Solution, Workload
from kopt_harness.setting import Setting

__all__ = ["SideBySide", "bench_on_trace_set", "side_by_side"]

TELLING = 0.1
"""Relative difference of two latencies that is pointed out."""
_INPUTS_PY = """\
from pathlib import Path

from kopt_harness._exported_inputs import ExportedInputs

_found = ExportedInputs(Path({root!r}), {name!r}, {static!r}, Path({original!r}))
GENERATORS, bind, vary = _found.generators, _found.bind, _found.vary
draw_static = _found.draw_static
"""
"""``inputs.py`` of the definition that the judge loads here."""


class SideBySide(NamedTuple):
    """Both results."""

    bench: Bench
    flags: Mapping[str, Any]
    trace_set: TraceSet
    official: tuple[OfficialRow, ...]
    kopt: Evaluation

    @property
    def passed(self) -> bool:
        """Whether flashinfer-bench passed every workload."""
        return all(row.status == "PASSED" for row in self.official)

    def document(self) -> dict[str, Any]:
        """The JSON document of ``kopt official``."""
        return {
            "solution": self.kopt.solution.model_dump(mode="json"),
            "target": self.kopt.target,
            "seed": self.trace_set.seed,
            "official": {**self.bench.model_dump(mode="json"), "flags": dict(self.flags)},
            "kopt": {
                "verdict": self.kopt.verdict.value,
                "reasons": [reason.model_dump(mode="json") for reason in self.kopt.reasons],
                "flags": [flag.model_dump(mode="json") for flag in self.kopt.flags],
                "environment": self.kopt.environment,
                "isolation": self.kopt.isolation,
            },
            "workloads": self.rows(),
            "differences": self.differences(),
        }

    def differences(self) -> list[str]:
        """What the two do otherwise, and where their answers differ, a sentence each."""
        return [*_ways(self), *(text for row in self.rows() for text in _row_differences(row))]

    def rows(self) -> list[dict[str, Any]]:
        """What both say of each workload."""
        return [self._row(row) for row in self.official]

    def _row(self, row: OfficialRow) -> dict[str, Any]:
        found = next((w for w in self.kopt.workloads if w.uuid == row.uuid), None)
        timing = (found and found.timing) or {}
        median_us = timing.get("median_us")
        return {
            "uuid": row.uuid,
            "axes": found.axes if found else {},
            "official": row.model_dump(mode="json", exclude={"uuid"}),
            "kopt": {
                "verdict": found.verdict.value if found else None,
                "tiers": {name: t.verdict for name, t in found.tiers.items()} if found else {},
                "median_us": median_us,
                "timer": timing.get("timer"),
                "cache": timing.get("cache"),
                "n": timing.get("n"),
            },
            "ratio": median_us / row.latency_us if median_us and row.latency_us else None,
        }


def bench_on_trace_set(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    trace_set: TraceSet,
    folder: Path,
    *,
    calls: int,
) -> Evaluation:
    """Checked timing of kopt on exactly the inputs of a data set.

    Args:
        setting: target and options.
        solution: what to time.
        workloads: those of the data set.
        trace_set: with their inputs.
        folder: empty; gets a root whose definition reads the data set.
        calls: timed calls of each workload.
    """
    definition = setting.catalog.resolve(solution.definition)
    root = _root_on(setting.catalog, definition, trace_set, folder)
    options = setting.options.model_copy(
        update={"trials": 1, "pool": 1, "bench_calls": calls, "seed": None}
    )
    here = dataclasses.replace(setting, catalog=Catalog(root), options=options)
    with device_lease(here.device_id):
        return evaluate(here, solution, workloads, DictLedger(), timed=True)


def side_by_side(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    bench: Bench,
    *,
    seed: int | None = None,
    trials: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> SideBySide:
    """Writes a data set and has both judge it.

    Args:
        setting: catalog, target and options; the target must be a CUDA device.
        solution: what to run.
        workloads: of its definition.
        bench: as ``about_bench`` found it.
        seed: of the inputs; drawn at random by default.
        trials: of flashinfer-bench; as in the contest by default.
        notify: gets progress.

    Raises:
        InfraError: If flashinfer-bench cannot run here, or something of the machine failed.
    """
    require_runnable(bench)
    catalog = setting.catalog
    definition = catalog.resolve(solution.definition)
    flags = contest_flags(definition, solution, trials=trials)
    scratch = catalog.root.local / "official"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as made:
        notify(f"inputs of {len(workloads)} workloads")
        try:
            data = write_trace_set(
                catalog,
                definition,
                workloads,
                Path(made) / "dataset",
                solution=solution,
                seed=seed,
            )
        except UnavailableError as error:
            raise InfraError(error.message, hint=error.hint) from error
        notify(f"flashinfer-bench {bench.version}")
        with device_lease(setting.device_id):
            official = run_bench(bench, data, flags, setting.worker_variables)
        notify("kopt")
        calls = int(flags["iterations"])
        place = Path(made) / "root"
        kopt = bench_on_trace_set(setting, solution, workloads, data, place, calls=calls)
    return SideBySide(bench, flags, data, official, kopt)


def _ways(both: SideBySide) -> list[str]:
    """What holds for every workload."""
    first = next((w.timing for w in both.kopt.workloads if w.timing), None) or {}
    timer = first.get("timer", both.kopt.environment.get("timer"))
    return [
        f"timer: flashinfer-bench {both.bench.timer} ({both.bench.timer_note}; mean over "
        f"trials); kopt {timer} (median of calls), cache {first.get('cache', 'cold')}",
        "inputs: flashinfer-bench gives every call the same contents; kopt checks the same, and "
        "varies a small random part before each timed call",
        "rule: flashinfer-bench applies the contest tier; kopt the strict tier as well",
    ]


def _row_differences(row: Mapping[str, Any]) -> list[str]:
    official, kopt = row["official"], row["kopt"]
    where = f"workload {row['uuid'][:12]}"
    said = []
    if (official["status"] == "PASSED") != (kopt["verdict"] == "pass"):
        tiers = ", ".join(f"{name} {verdict}" for name, verdict in kopt["tiers"].items())
        text = f"{where}: flashinfer-bench {official['status']}, kopt {kopt['verdict']}"
        said.append(text + (f" ({tiers})" if tiers else ""))
    ratio = row["ratio"]
    if ratio is not None and abs(math.log(ratio)) > math.log1p(TELLING):
        said.append(
            f"{where}: kopt {kopt['median_us']:.2f} us, flashinfer-bench "
            f"{official['latency_us']:.2f} us, {ratio:.2f} times"
        )
    return said


def _root_on(catalog: Catalog, definition: Definition, data: TraceSet, folder: Path) -> Root:
    """A root with the one definition, whose inputs are those of a data set."""
    original = catalog.folder(definition).resolve()
    copy = folder / "kernels" / definition.name
    copy.mkdir(parents=True)
    for name in ("definition.json", "reference.py", "cost.py", "check.py", "workloads.jsonl"):
        if (original / name).is_file():
            shutil.copyfile(original / name, copy / name)
    text = _INPUTS_PY.format(
        root=str(data.folder.resolve()),
        name=definition.name,
        static=tuple(definition.kopt.static_inputs),
        original=str(original),
    )
    (copy / "inputs.py").write_text(text)
    catalog.root.artifacts.mkdir(parents=True, exist_ok=True)
    (folder / "artifacts").symlink_to(catalog.root.artifacts.resolve())  # what is built already
    return Root(folder.resolve())
