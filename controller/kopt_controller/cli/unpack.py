"""``kopt unpack``: a solution JSON becomes a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._common import MAKE, emit, examples, note, state_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=MAKE, epilog=examples("kopt unpack solution.json my-solution"))(
        unpack
    )


def unpack(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Solution JSON.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder to write.")],
) -> None:
    """Write a solution JSON as a folder that packs to the same content again."""
    from kopt_harness.errors import InvalidInputError
    from kopt_harness.pack import load
    from kopt_harness.pack import unpack as unpack_solution

    state = state_of(ctx)
    if file.is_dir():
        raise InvalidInputError(f"{str(file)!r} is a folder", hint="give a solution JSON file")
    solution, notes = load(file)
    for text in notes:
        note(state, f"note: {text}")
    unpack_solution(solution, folder)
    document = {
        "solution": {
            "name": solution.name,
            "definition": solution.definition,
            "sha256": solution.sha256,
        },
        "folder": str(folder),
        "notes": list(notes),
    }
    count = len(solution.sources)
    text = f"{solution.name}: {count} source{'s' if count != 1 else ''} written to {folder}"
    emit(state, document, lambda console: console.print(text))
