"""``kopt sweep``: every workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from kopt_harness.attempts import Attempts
from kopt_harness.errors import NotFoundError, UsageError

from ..kinds import SWEEP
from ..shown import ratio_text
from ._common import (
    JUDGE,
    AppState,
    SeedOption,
    TargetOption,
    TrialsOption,
    WorkloadOption,
    emit,
    examples,
    live_lines,
    load_solution,
    note,
    pick_target,
    pick_workloads,
    state_of,
)
from ._judging import exit_code, measure_options, print_evaluation
from .compare import print_comparison

if TYPE_CHECKING:
    from kopt_harness.archive import Run
    from kopt_harness.detailed import DetailedResults
    from kopt_harness.executors import Executor, Work
    from kopt_harness.journal import Journal
    from kopt_harness.ledger import Kept
    from kopt_harness.schema import Definition, Solution, SweepResult, Workload, WorkloadResult
    from kopt_harness.setting import Setting
    from rich.console import Console

RESULT_FILE = "result.json"
"""The document of the sweep; beside its journal once it is complete."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt sweep my-solution --workers 2",
            "kopt sweep --correctness-only --target h200",
            "kopt sweep my-solution --out-dir results --resume",
            "kopt sweep my-solution --executor ray --address auto --workers 8",
        ),
    )(sweep)


def sweep(
    ctx: typer.Context,
    solution: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DIR]...", help="Default: the incumbents."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="A ceiling; default: 1.")
    ] = None,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="D", help="Only this one's incumbent.")
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", metavar="E", help="local, or ray for several machines.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="A", help="Of a Ray cluster; default: this machine."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", metavar="D", help="Where the journal is kept.")
    ] = None,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Continue, and do again where the machine failed."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the journal there.")] = False,
    correctness_only: Annotated[
        bool, typer.Option("--correctness-only", help="No timing: a correctness gate for CI.")
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="Time a peer, paired; NAME@graph: as a CUDA graph. May be repeated.",
        ),
    ] = None,
    fresh_inputs: Annotated[
        bool, typer.Option("--fresh-inputs", help="Use and keep no input set of other sweeps.")
    ] = False,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
) -> None:
    """Check solutions on every workload and compare each with the incumbent.

    A fault of the machine that is known to pass is tried again by itself, a few times; a verdict
    on a solution never is.
    """
    from kopt_harness.executors import Place, create_executor
    from kopt_harness.files import write_output
    from kopt_harness.schema import Verdict

    state = state_of(ctx)
    if baseline and correctness_only:
        raise UsageError("--correctness-only times nothing, --baseline does", hint="drop one")
    names = [] if correctness_only else baseline
    options = measure_options(state, trials=trials, seed=seed, workers=workers, baselines=names)
    shelf = None if fresh_inputs else state.root.local / "judge"
    place = Place(state.catalog, pick_target(target).name, options, shelf, address)
    with closing(create_executor(executor, place)) as runner:
        runs = _Runs(out_dir, retry=retry, resume=resume)
        chosen = _solutions(state, runner.setting, solution, definition)
        picked = [pick_workloads(state, each, workload, default="all") for each, _ in chosen]
        run, results = _perform(state, runner, chosen, picked, runs, timed=not correctness_only)
    note(state, f"journal: {run.journal_path}")
    documents = [sweep_document(result) for result in results]
    whole = documents[0] if solution and len(solution) == 1 else {"sweeps": documents}
    write_output(run.folder / RESULT_FILE, json.dumps(whole, indent=1) + "\n")
    emit(state, whole, lambda console: _print(console, results))
    raise typer.Exit(exit_code(Verdict.combine(r.evaluation.verdict for r in results)))


class _Runs(NamedTuple):
    """Which folder a sweep writes to, and whether one goes on there."""

    out_dir: Path | None
    retry: bool
    resume: bool


def _perform(
    state: AppState,
    runner: Executor,
    chosen: Sequence[tuple[Definition, Solution]],
    picked: Sequence[list[Workload]],
    runs: _Runs,
    *,
    timed: bool,
) -> tuple[Run, list[SweepResult]]:
    """Sweeps with a journal, which is continued where one is there."""
    from kopt_harness.baselines import find_baselines
    from kopt_harness.journal import Journal

    from ..campaign import interruptible

    for resolved, _ in chosen:
        # Before anything is measured: a sweep may take hours.
        find_baselines(runner.setting, resolved)
    run = _open_run(state, runner.setting, chosen, picked, runs)
    again = f"kopt sweep with the same arguments, --out-dir {run.folder} and --resume"
    with Journal(run.journal_path) as journal, interruptible("the sweep", again):
        _say_kept_aside(state, journal)
        (run.folder / RESULT_FILE).unlink(missing_ok=True)  # of a sweep that goes on
        ledger = Attempts(journal, again=runs.retry)
        return run, _Sweep(state, runner, run.folder, ledger).run(chosen, picked, timed=timed)


class _Sweep:
    """Solutions over their workloads, shown and written down while it goes on."""

    def __init__(self, state: AppState, runner: Executor, folder: Path, ledger: Kept) -> None:
        self._state = state
        self._runner = runner
        self._folder = folder
        self._ledger = ledger

    def run(
        self,
        chosen: Sequence[tuple[Definition, Solution]],
        picked: Sequence[list[Workload]],
        *,
        timed: bool,
    ) -> list[SweepResult]:
        """Sweeps; after a failure of the machine what is complete is not measured again."""
        from kopt_harness.executors import Work
        from kopt_harness.watch import PROGRESS_FILE, Watch, progress_lines

        target = self._runner.setting.target.name
        incumbent = self._state.catalog.incumbent
        works = [
            Work(candidate, incumbent(definition, target) if timed else None, workloads)
            for (definition, candidate), workloads in zip(chosen, picked, strict=True)
        ]
        files = self._files(works)
        watch = Watch(sum(map(len, picked)), self._folder / PROGRESS_FILE)

        def checked(candidate: Solution, workload: Workload, result: WorkloadResult) -> None:
            files[candidate.sha256].add(candidate, workload, result)

        def swept(work: Work, result: SweepResult) -> None:
            from kopt_harness.baselines import reference_latency

            latency = {
                each.uuid: reference_latency(result, each.uuid)["reference_latency_ms"]
                for each in work.workloads
            }
            file = files[work.candidate.sha256]
            file.conclude(result.evaluation, work.workloads, latency)

        with live_lines(self._state, lambda: progress_lines(watch.document())):
            try:
                return self._runner.sweep(
                    works, self._ledger, watch=watch, checked=checked, swept=swept
                )
            finally:
                watch.end()

    def _files(self, works: Sequence[Work]) -> dict[str, DetailedResults]:
        """One file for all; one for each solution where two are of the same definition."""
        from kopt_harness.detailed import FILE_NAME, DetailedResults

        counts = {each.candidate.sha256: len(each.workloads) for each in works}
        if len({each.candidate.definition for each in works}) == len(works):
            file = DetailedResults(self._folder / FILE_NAME, sum(counts.values()))
            return dict.fromkeys(counts, file)
        return {
            each.candidate.sha256: DetailedResults(
                self._folder / f"{each.candidate.name}-{each.candidate.sha256[:12]}" / FILE_NAME,
                len(each.workloads),
            )
            for each in works
        }


def _open_run(
    state: AppState,
    setting: Setting,
    chosen: Sequence[tuple[Definition, Solution]],
    picked: Sequence[list[Workload]],
    runs: _Runs,
) -> Run:
    """The folder of the sweep, which ``kopt status`` finds; a new one, or one that goes on."""
    from kopt_harness.archive import Archive

    if runs.out_dir is not None:
        _require_fresh(runs.out_dir, go_on=runs.resume or runs.retry, resume=runs.resume)
    elif runs.resume:
        hint = "give --out-dir with the folder of a sweep"
        raise UsageError("no journal was named that could be continued", hint=hint)
    definitions = {definition.name: definition.kopt.alias for definition, _ in chosen}
    manifest = {
        "kind": SWEEP,
        "definition": next(iter(definitions)) if len(definitions) == 1 else "",
        "target": setting.target.name,
        "solutions": [
            {"name": s.name, "definition": s.definition, "sha256": s.sha256} for _, s in chosen
        ],
        "workloads": sum(map(len, picked)),
        "workers": setting.options.workers,
    }
    label = f"{'-'.join(definitions.values())[:40]}-{setting.target.name}"
    return Archive(state.root.local).create_sweep(label, manifest, runs.out_dir)


def _say_kept_aside(state: AppState, journal: Journal) -> None:
    if journal.kept_aside is not None:
        note(state, f"note: the end of the journal was no record; it is in {journal.kept_aside}")


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


def _solutions(
    state: AppState, setting: Setting, paths: list[Path] | None, name: str | None
) -> list[tuple[Definition, Solution]]:
    """The solutions that were named, or the incumbents."""
    if paths:
        wanted = state.catalog.resolve(name) if name else None
        packed = [load_solution(state, path, definition=wanted) for path in paths]
        if len({each.sha256 for each in packed}) < len(packed):
            raise UsageError("the same solution was named twice", hint="name each of them once")
        return [(state.catalog.resolve(each.definition), each) for each in packed]
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


def _require_fresh(folder: Path, *, go_on: bool, resume: bool) -> None:
    there = (folder / "journal.jsonl").is_file()
    if there and not go_on:
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
    text = f"baseline {name}: {ratio_text(found['ratio'], found['ci'])} times the mean latency"
    if found["deviation"]:
        text += f"; as a candidate it would be refused: {found['deviation']}"
    return text + (f"; {found['reason']}" if found["reason"] else "")
