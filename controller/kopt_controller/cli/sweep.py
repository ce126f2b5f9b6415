"""``kopt sweep``: every workload."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kopt_harness.errors import InfraError, NotFoundError, UnavailableError, UsageError

from ._common import (
    JUDGE,
    AppState,
    SeedOption,
    TargetOption,
    TrialsOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    note,
    pick_workloads,
    progress,
    state_of,
)
from ._judging import exit_code, measure_options, open_setting, print_evaluation
from .compare import print_comparison

if TYPE_CHECKING:
    from kopt_harness.ledger import Ledger
    from kopt_harness.schema import Definition, Solution, SweepResult, Workload
    from kopt_harness.setting import Setting
    from rich.console import Console

RETRIES = 2
"""Further tries after the machine failed, with ``--retry``."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt sweep my-solution --workers 2",
            "kopt sweep --correctness-only --target h200",
            "kopt sweep my-solution --out-dir results --resume",
        ),
    )(sweep)


def sweep(
    ctx: typer.Context,
    solution: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Default: the incumbents.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="A ceiling; default: 1.")
    ] = None,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="D", help="Only this one's incumbent.")
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local, the only one here.")
    ] = "local",
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", metavar="D", help="Where the journal is kept.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try again where the machine failed.")] = (
        False
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the journal there.")] = False,
    correctness_only: Annotated[
        bool, typer.Option("--correctness-only", help="No timing: a correctness gate for CI.")
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="NAME", help="Time a peer, paired; may be repeated."),
    ] = None,
    fresh_inputs: Annotated[
        bool, typer.Option("--fresh-inputs", help="Use and keep no input set of other sweeps.")
    ] = False,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
) -> None:
    """Check a solution on every workload and compare it with the incumbent."""
    from kopt_harness.baselines import find_baselines
    from kopt_harness.files import write_output
    from kopt_harness.journal import Journal
    from kopt_harness.schema import Verdict

    from ..campaign import interruptible

    state = state_of(ctx)
    if executor != "local":
        raise UnavailableError(f"the executor {executor!r} is not here", hint="use local")
    if baseline and correctness_only:
        raise UsageError("--correctness-only times nothing, --baseline does", hint="drop one")
    names = [] if correctness_only else baseline
    options = measure_options(state, trials=trials, seed=seed, workers=workers, baselines=names)
    setting = open_setting(state, target, options)
    if not fresh_inputs:
        setting = dataclasses.replace(setting, shelf=state.root.local / "judge")
    chosen = _solutions(state, setting, solution, definition)
    for resolved, _ in chosen:
        find_baselines(setting, resolved)  # before anything is measured: a sweep may take hours
    folder = out_dir or state.root.local / "sweeps" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    _require_fresh(folder, resume=resume)
    documents: list[dict[str, Any]] = []
    results: list[SweepResult] = []
    again = f"kopt sweep with the same arguments, --out-dir {folder} and --resume"
    with Journal(folder / "journal.jsonl") as journal, interruptible("the sweep", again):
        ledger = journal.scoped(_scope(setting))
        for resolved, packed in chosen:
            workloads = pick_workloads(state, resolved, workload, default="all")
            one = _Sweep(state, setting, resolved, packed, workloads, ledger)
            result = one.run(timed=not correctness_only, retries=RETRIES if retry else 0)
            results.append(result)
            documents.append(sweep_document(result))
    note(state, f"journal: {folder / 'journal.jsonl'}")
    whole = documents[0] if solution is not None else {"sweeps": documents}
    write_output(folder / "result.json", json.dumps(whole, indent=1) + "\n")
    emit(state, whole, lambda console: _print(console, results))
    raise typer.Exit(exit_code(Verdict.combine(r.evaluation.verdict for r in results)))


def _scope(setting: Setting) -> str:
    """Beginning of the keys of results that may stand beside each other."""
    options = setting.options
    same = [
        setting.environment["epoch"],
        setting.timer,
        options.cache,
        setting.calls_per_slot,
        options.seed,
    ]
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:12]


class _Sweep:
    """One solution over its workloads."""

    def __init__(
        self,
        state: AppState,
        setting: Setting,
        definition: Definition,
        solution: Solution,
        workloads: list[Workload],
        ledger: Ledger,
    ) -> None:
        self._state = state
        self._setting = setting
        self._definition = definition
        self._solution = solution
        self._workloads = workloads
        self._ledger = ledger

    def run(self, *, timed: bool, retries: int) -> SweepResult:
        """Sweeps; after a failure of the machine what is complete is not measured again."""
        from kopt_harness.sweep import sweep as run_sweep

        target = self._setting.target.name
        incumbent = self._state.catalog.incumbent(self._definition, target) if timed else None
        total = len(self._workloads)
        with progress(self._state, f"sweep {self._solution.name}", total) as bar:
            for left in range(retries, -1, -1):
                count = iter(range(1, total + 1))
                try:
                    return run_sweep(
                        self._setting,
                        self._solution,
                        incumbent,
                        self._workloads,
                        self._ledger,
                        progress=_advance(bar.update, count),
                    )
                except InfraError as error:
                    if not left:
                        raise
                    note(self._state, f"the machine failed: {error.message}; trying again")
        raise AssertionError("the last try returns or raises")


def sweep_document(result: SweepResult) -> dict[str, Any]:
    """The sweep, with the comparisons beside the verdicts."""
    from kopt_harness.baselines import baselines_document, reference_latency, workload_medians

    document = result.evaluation.document()
    for row in document["workloads"]:
        row["baselines"] = workload_medians(result, row["uuid"])
        row.update(reference_latency(result, row["uuid"]))
    first = next(iter(result.baselines.values()), None)
    return {
        **document,
        "complete": result.complete,
        "comparison": result.comparison and result.comparison.document(),
        "baseline": first and first.document(),
        **baselines_document(result),
    }


def _advance(update: Callable[[int], None], count: Any) -> Callable[[Any, Any], None]:
    def advance(_workload: Any, _result: Any) -> None:
        update(next(count))

    return advance


def _solutions(
    state: AppState, setting: Setting, path: Path | None, name: str | None
) -> list[tuple[Definition, Solution]]:
    """The solution that was named, or the incumbents."""
    if path is not None:
        wanted = state.catalog.resolve(name) if name else None
        packed = load_solution(state, path, definition=wanted)
        return [(state.catalog.resolve(packed.definition), packed)]
    definitions = [state.catalog.resolve(name)] if name else state.catalog.definitions()
    found = [(d, state.catalog.incumbent(d, setting.target.name)) for d in definitions]
    chosen = [(d, solution) for d, solution in found if solution is not None]
    if not chosen:
        raise NotFoundError(
            f"no definition has an incumbent on {setting.target.name!r}",
            hint="name a solution folder",
        )
    return chosen


def _peer(state: AppState, definition: Definition, name: str) -> Solution:
    """The solution of ``--baseline``."""
    from kopt_harness.baselines import find_baseline

    return find_baseline(state.catalog, definition, name)


def _require_fresh(folder: Path, *, resume: bool) -> None:
    there = (folder / "journal.jsonl").is_file()
    if there and not resume:
        raise UsageError(f"{str(folder)!r} has a journal already", hint="add --resume")
    if resume and not there:
        raise NotFoundError(
            f"no journal in {str(folder)!r}", hint="give --out-dir with the folder of a sweep"
        )


def _print(console: Console, results: list[SweepResult]) -> None:
    from kopt_harness.baselines import baselines_document

    for result in results:
        print_evaluation(console, result.evaluation)
        if result.comparison is not None:
            print_comparison(console, result.comparison)
        for name, each in baselines_document(result)["baselines"].items():
            console.print(_baseline_line(name, each), soft_wrap=True)


def _baseline_line(name: str, found: dict[str, Any]) -> str:
    """The ratio as people say it: how many times as long the baseline takes."""
    if found["ratio"] is None:
        return f"baseline {name}: not timed: {found['reason']}"
    lo, hi = found["ci"]
    text = f"baseline {name}: {found['ratio']:.3f} [{lo:.3f}, {hi:.3f}] times the mean latency"
    return text + (f"; {found['reason']}" if found["reason"] else "")
