"""``kopt profile``: what a solution's time, or its machine code, is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import (
    JUDGE,
    AppState,
    SolutionArgument,
    TargetOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    note,
    pick_target,
    pick_workloads,
    print_table,
    progress,
    state_of,
)

if TYPE_CHECKING:
    from kopt_harness.schema import Profile, Solution, Workload
    from kopt_harness.targets import Target
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt profile my-solution --workload 3",
            "kopt profile my-solution --profiler sass --target b200 --json",
        ),
    )(profile)


def profile(
    ctx: typer.Context,
    folder: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    profiler: Annotated[
        str,
        typer.Option("--profiler", metavar="P", help="cupti, ncu, null, sass or torch."),
    ] = "torch",
) -> None:
    """Profile a solution: its kernels or operators, or (sass) the code it compiles to.

    The default workload is the representative one of middle cost. sass needs no GPU.
    """
    from kopt_harness.profile import reads_builds

    state = state_of(ctx)
    is_static = reads_builds(profiler)
    chosen = pick_target(target)
    solution = load_solution(state, folder)
    definition = state.catalog.resolve_exact(solution.definition)
    shapes = pick_workloads(state, definition, workload)
    if workload is None:
        shapes = shapes[len(shapes) // 2 :][:1]
    run = _read_builds if is_static else _watch_calls
    found = run(state, solution, shapes, chosen, profiler)
    document: dict[str, Any] = {
        "solution": {
            "name": solution.name,
            "definition": solution.definition,
            "sha256": solution.sha256,
        },
        "target": chosen.name,
        "profiler": profiler,
        "profiles": [one.model_dump(mode="json") for one in found],
    }
    emit(state, document, lambda console: _print(console, found))
    for text in dict.fromkeys(text for one in found for text in one.notes):
        note(state, f"note: {text}")
    if profiler != "null" and any(one.total_us is None and not one.compiled for one in found):
        raise typer.Exit(1)


def _read_builds(
    state: AppState, solution: Solution, shapes: list[Workload], target: Target, profiler: str
) -> list[Profile]:
    from kopt_harness.options import MeasureOptions
    from kopt_harness.profiled import profile_build
    from kopt_harness.setting import Setting

    setting = Setting(state.catalog, target, MeasureOptions())
    with progress(state, f"compiling {solution.name} for {target.name}"):
        return [profile_build(setting, solution, shape, profiler) for shape in shapes]


def _watch_calls(
    state: AppState, solution: Solution, shapes: list[Workload], target: Target, profiler: str
) -> list[Profile]:
    from kopt_harness.ledger import DictLedger
    from kopt_harness.local import LocalHarness
    from kopt_harness.options import MeasureOptions

    harness = LocalHarness(
        state.root, state.catalog, target.name, MeasureOptions(), profiler=profiler
    )
    try:
        with progress(state, f"profiling {solution.name}"):
            return [harness.profile(solution, shape, DictLedger()) for shape in shapes]
    finally:
        harness.close()


def _print(console: Console, profiles: list[Profile]) -> None:
    for one in profiles:
        axes = ", ".join(f"{name} {value}" for name, value in one.axes.items())
        time = "" if one.total_us is None else f": {one.total_us:.2f} us"
        console.print(f"{one.solution.name} on {one.target}, {axes}{time}")
        if one.kernels:
            rows = [(k.name, k.calls, f"{k.total_us:.2f}", f"{k.share:.0%}") for k in one.kernels]
            columns = ("kernel or operator", "calls", "us", "share")
            print_table(console, columns, rows, numeric=columns[1:])
        if one.compiled:
            _print_compiled(console, one)
        if one.diagnosis is not None and one.diagnosis.bottleneck != "unknown":
            limiter = f": {one.diagnosis.limiter}" if one.diagnosis.limiter else ""
            console.print(f"limited by {one.diagnosis.bottleneck}{limiter}")


def _print_compiled(console: Console, one: Profile) -> None:
    rows = [
        (
            k.name,
            k.arch,
            k.registers,
            k.smem_bytes,
            k.stack_bytes,
            k.spill_instructions,
            k.instructions,
            ", ".join(f"{name} {count}" for name, count in list(k.mix.items())[:5]),
        )
        for k in one.compiled
    ]
    columns = (
        "kernel",
        "arch",
        "registers",
        "smem_bytes",
        "stack_bytes",
        "spills",
        "instructions",
        "most of them",
    )
    print_table(console, columns, rows, numeric=columns[2:7])
