"""``kopt official``: the installed flashinfer-bench and kopt, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from kopt_harness.errors import InfraError, UnavailableError, UsageError

from ._common import (
    EVIDENCE,
    AppState,
    SeedOption,
    SolutionArgument,
    TargetOption,
    TrialsOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    note,
    pick_target,
    pick_workloads,
    print_table,
    state_of,
)
from ._judging import exit_code, measure_options, open_setting
from .export import emit_trace_set

if TYPE_CHECKING:
    from kopt_harness.official import SideBySide
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt official my-solution",
            "kopt official my-solution --workload all --python ~/fib/bin/python --json",
            "kopt official my-solution --dataset-only data",
        ),
    )(official)


def official(
    ctx: typer.Context,
    solution: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="Has flashinfer-bench; default: kopt's own."),
    ] = None,
    dataset_only: Annotated[
        Path | None,
        typer.Option("--dataset-only", metavar="DIR", help="Write the data set, run nothing."),
    ] = None,
) -> None:
    """Run the installed flashinfer-bench on the same solution and inputs.

    flashinfer-bench has no sandbox: the solution runs with your rights. --trials and --seed are
    flashinfer-bench's trials and the seed of the inputs; both have a default.
    """
    from kopt_harness.official import side_by_side
    from kopt_harness.official_bench import about_bench, require_runnable

    state = state_of(ctx)
    packed = load_solution(state, solution)
    definition = state.catalog.resolve(packed.definition)
    workloads = pick_workloads(state, definition, workload)
    if dataset_only is not None and python is not None:
        raise UsageError("--dataset-only runs no --python", hint="drop one")
    try:
        if dataset_only is not None:
            emit_trace_set(state, definition, workloads, dataset_only, solution=packed, seed=seed)
            return
        chosen = pick_target(target)
        uuid = chosen.present().uuid
        variables = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        bench = about_bench(str(Path(python).expanduser()) if python else sys.executable, variables)
        require_runnable(bench)
        setting = open_setting(state, chosen.name, measure_options(state))
    except UnavailableError as error:  # it is this machine that cannot
        raise InfraError(error.message, hint=error.hint) from error
    if setting.target.kind != "cuda":
        raise InfraError(
            f"flashinfer-bench benchmarks on CUDA devices only, not on {setting.target.name!r}",
            hint="choose a GPU with --target; kopt doctor lists those that are here",
        )
    both = side_by_side(
        setting,
        packed,
        workloads,
        bench,
        seed=seed,
        trials=trials,
        notify=lambda text: note(state, text),
    )
    emit(state, both.document(), lambda console: print_side_by_side(console, both))
    raise typer.Exit(_exit_code(state, both))


def print_side_by_side(console: Console, both: SideBySide) -> None:
    """A row for each workload with both answers, then what differs."""
    commit = f" ({both.bench.commit[:12]})" if both.bench.commit else ""
    console.print(
        f"flashinfer-bench {both.bench.version}{commit} and kopt on {both.bench.device}: "
        f"{both.kopt.solution.name} ({both.kopt.solution.sha256[:12]})"
    )
    rows = []
    for row in both.rows():
        theirs, ours = row["official"], row["kopt"]
        rows.append(
            [
                row["uuid"][:12],
                " ".join(f"{axis}={extent}" for axis, extent in row["axes"].items()),
                theirs["status"],
                ours["verdict"],
                _microseconds(theirs["latency_us"]),
                theirs["timer"],
                _microseconds(ours["median_us"]),
                ours["timer"],
                None if row["ratio"] is None else f"{row['ratio']:.3f}",
            ]
        )
    columns = ["workload", "axes", "official", "kopt", "official us", "timer", "kopt us", "timer "]
    numeric = ["official us", "kopt us", "kopt/official"]
    print_table(console, [*columns, "kopt/official"], rows, numeric=numeric)
    for text in both.differences():
        console.print(text, soft_wrap=True)


def _microseconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _exit_code(state: AppState, both: SideBySide) -> int:
    """Of kopt's verdict; 1 also where flashinfer-bench alone did not pass."""
    for row in both.official:
        if row.status != "PASSED" and row.log:
            note(state, f"{row.uuid[:12]}: {row.log.strip().splitlines()[-1]}")
    return exit_code(both.kopt.verdict) or int(not both.passed)
