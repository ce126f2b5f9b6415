"""``kopt export``: definitions and solutions as files of FlashInfer-Bench."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ._common import (
    EVIDENCE,
    AppState,
    DefinitionArgument,
    SolutionArgument,
    emit,
    examples,
    load_solution,
    state_of,
)

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Default: standard output."),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Write definitions and solutions as files of FlashInfer-Bench.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.command(epilog=examples("kopt export definition gdn_decode -o gdn_decode.json"))(
        definition
    )
    group.command(epilog=examples("kopt export solution my-solution -o solution.json"))(solution)
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
