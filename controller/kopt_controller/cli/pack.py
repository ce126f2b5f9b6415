"""``kopt pack``: a solution folder becomes one JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._common import MAKE, emit, examples, note, parse_settings, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=MAKE,
        epilog=examples(
            "kopt pack kernels/gdn_decode_qk4_v8_d128_k_last/solutions/torch-vectorized",
            "kopt pack my-solution -o solution.json --set TILE=64",
        ),
    )(pack)


def pack(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with config.toml.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the JSON file here."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value of a declared tunable."),
    ] = None,
) -> None:
    """Validate a solution folder, and pack it into a FlashInfer-Bench solution JSON.

    Without -o nothing is written: the folder is validated; its hash and what the lint finds
    in its sources are shown.
    """
    from kopt_harness.files import write_output
    from kopt_harness.lint import lint
    from kopt_harness.pack import pack as pack_folder
    from kopt_harness.pack import read_tunables, solution_json

    state = state_of(ctx)
    tunables = parse_settings(settings, read_tunables(folder) if settings else {})
    solution, notes = pack_folder(folder, tunables=tunables, known=state.catalog)
    for text in notes:
        note(state, f"note: {text}")
    if output is not None:
        write_output(output, solution_json(solution))
    findings = lint(solution).findings
    document = {
        "solution": {
            "name": solution.name,
            "definition": solution.definition,
            "sha256": solution.sha256,
        },
        "language": solution.spec.language,
        "entry_point": solution.spec.entry_point,
        "sources": [source.path for source in solution.sources],
        "notes": list(notes),
        "findings": [finding.model_dump(mode="json") for finding in findings],
        "output": str(output) if output is not None else None,
    }

    def human(console: Console) -> None:
        console.print(f"{solution.name}: {solution.spec.language}, {solution.spec.entry_point}")
        console.print(f"definition  {solution.definition}")
        console.print(f"sha256      {solution.sha256}")
        console.print(f"sources     {', '.join(source.path for source in solution.sources)}")
        for found in findings:
            line = f"{found.level} {found.rule}  {found.where}: {found.why}: {found.text}"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        if output is not None:
            console.print(f"written     {output}")

    emit(state, document, human)
