"""``kopt export``: definitions, solutions and data sets as files of FlashInfer-Bench."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..shown import counted
from ._common import (
    EVIDENCE,
    AppState,
    DefinitionArgument,
    SeedOption,
    SolutionArgument,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    pick_workloads,
    state_of,
)

if TYPE_CHECKING:
    from kopt_harness.schema import Definition, Solution, Workload

__all__ = ["emit_trace_set", "register"]

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Default: standard output."),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Write definitions, solutions and data sets as files of FlashInfer-Bench.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.command(epilog=examples("kopt export definition gdn_decode -o gdn_decode.json"))(
        definition
    )
    group.command(epilog=examples("kopt export solution my-solution -o solution.json"))(solution)
    group.command(
        name="trace-set",
        epilog=examples(
            "kopt export trace-set gdn_decode -o data --workload all",
            "kopt export trace-set gdn_decode -o data --solution my-solution --seed 1",
        ),
    )(trace_set)
    app.add_typer(group, name="export", rich_help_panel=EVIDENCE)


def definition(ctx: typer.Context, name: DefinitionArgument, output: OutputOption = None) -> None:
    """Write one definition as a JSON file with its reference inside."""
    from kopt_harness.export import definition_document, definition_json

    state = state_of(ctx)
    resolved = state.catalog.resolve(name)
    text = definition_json(state.catalog, resolved)
    document = {"definition": definition_document(state.catalog, resolved)}
    _write(state, text, document, output, resolved.name)


def solution(ctx: typer.Context, folder: SolutionArgument, output: OutputOption = None) -> None:
    """Write a solution as a JSON file; the same as kopt pack -o."""
    from kopt_harness.pack import solution_json

    state = state_of(ctx)
    packed = load_solution(state, folder)
    document = {"solution": packed.model_dump(mode="json")}
    _write(state, solution_json(packed), document, output, packed.name)


def trace_set(
    ctx: typer.Context,
    name: DefinitionArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder.")],
    solution: Annotated[
        Path | None, typer.Option("--solution", metavar="DIR", help="Put in beside the inputs.")
    ] = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
) -> None:
    """Write a FlashInfer-Trace data set with generated inputs as safetensors."""
    state = state_of(ctx)
    definition = state.catalog.resolve(name)
    packed = None if solution is None else load_solution(state, solution, definition=definition)
    workloads = pick_workloads(state, definition, workload)
    emit_trace_set(state, definition, workloads, output, solution=packed, seed=seed)


def emit_trace_set(
    state: AppState,
    definition: Definition,
    workloads: Sequence[Workload],
    folder: Path,
    *,
    solution: Solution | None,
    seed: int | None,
) -> None:
    """Write a data set and say what is in it.

    Args:
        state: Of the command.
        definition: What to export.
        workloads: Whose inputs are drawn.
        folder: A new one.
        solution: Put in beside them, if given.
        seed: Of the inputs; drawn at random by default.
    """
    from kopt_harness.export import write_trace_set

    written = write_trace_set(
        state.catalog, definition, workloads, folder, solution=solution, seed=seed
    )
    document = {
        "definition": definition.name,
        "solution": None if solution is None else solution.name,
        "output": str(folder),
        "seed": written.seed,
        "workloads": list(written.workloads),
        "bytes": written.nbytes,
    }
    text = f"{folder}: {counted(len(workloads), 'workload')} of {definition.kopt.alias}, "
    text += f"{written.nbytes / 1e6:.1f} MB of inputs, seed {written.seed}"
    emit(state, document, lambda console: console.print(text, soft_wrap=True))


def _write(
    state: AppState, text: str, document: dict[str, Any], output: Path | None, name: str
) -> None:
    from kopt_harness.files import write_output

    if output is not None:
        write_output(output, text)
        emit(
            state,
            {"name": name, "output": str(output)},
            lambda console: console.print(f"{name} written to {output}"),
        )
    elif state.json:
        emit(state, document, lambda _: None)
    else:
        sys.stdout.write(text)
