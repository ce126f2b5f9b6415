"""``kopt build``: does it compile, and into what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ._common import (
    MAKE,
    SolutionArgument,
    TargetOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    pick_target,
    pick_workloads,
    print_table,
    progress,
    state_of,
)

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=MAKE,
        epilog=examples("kopt build my-solution", "kopt build my-solution --target b200"),
    )(build)


def build(
    ctx: typer.Context,
    folder: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
) -> None:
    """Compile a solution, also for hardware that is not here.

    Triton and CuTe DSL kernels are compiled for the shapes of one workload: the one named, or
    the representative one of middle cost.
    """
    from kopt_harness.build import build_in_worker

    state = state_of(ctx)
    chosen = pick_target(target)
    solution = load_solution(state, folder)
    definition = state.catalog.resolve_exact(solution.definition)
    shapes = pick_workloads(state, definition, workload)
    axes = shapes[len(shapes) // 2].axes if shapes else None
    with progress(state, f"building {solution.name} for {chosen.name}"):
        result = build_in_worker(
            solution,
            chosen.name,
            state.root.local / "builds",
            definition=definition,
            axes=axes,
        )

    def human(console: Console) -> None:
        outcome = "built" if result.ok else "does not build"
        cached = ", from the cache" if result.cached else f", {result.seconds:.1f} s"
        console.print(f"{solution.name} for {chosen.name}: {outcome}{cached if result.ok else ''}")
        columns = ("kind", "arch", "name", "registers", "smem_bytes", "spill_bytes")
        rows = [[getattr(artefact, column) for column in columns] for artefact in result.artefacts]
        if rows:
            print_table(console, columns, rows, numeric=columns[3:])
        if result.log.strip() and (not result.ok or state.verbosity > 0):
            console.print(result.log.rstrip())

    emit(state, result.document(), human)
    if not result.ok:
        raise typer.Exit(1)
