"""``kopt new``: a solution folder to begin with."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._common import MAKE, DefinitionArgument, emit, examples, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=MAKE,
        epilog=examples(
            "kopt new gdn_decode mine --language cpp",
            "kopt new gdn_decode mine --language cuda --folder ../contest/decode",
        ),
    )(new)


def new(
    ctx: typer.Context,
    definition: DefinitionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the solution.")],
    *,
    language: Annotated[
        str,
        typer.Option(
            "--language", "-l", metavar="L", help="python (also CuTe DSL), triton, cpp or cuda."
        ),
    ],
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="SOLUTION", help="Start from this one; default: simplest."),
    ] = None,
    author: Annotated[
        str | None, typer.Option("--author", help="Default: your login name.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Default: solutions/NAME of the definition."),
    ] = None,
) -> None:
    """Write a solution that builds and passes, to be changed into a faster one.

    It is a copy of the simplest solution that the definition has in that language.
    """
    from kopt_harness.scaffold import create_solution

    state = state_of(ctx)
    made = create_solution(
        state.catalog,
        state.catalog.resolve(definition),
        name,
        language=language,
        author=author or _login_name(),
        origin=origin,
        folder=folder,
    )
    document = {
        "solution": {
            "name": made.solution.name,
            "definition": made.solution.definition,
            "sha256": made.solution.sha256,
        },
        "language": language,
        "origin": made.origin,
        "folder": str(made.folder),
    }

    def human(console: Console) -> None:
        console.print(f"{made.folder} was begun from {made.origin}")
        console.print(f"next: kopt check {made.folder}")

    emit(state, document, human)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no entry
        return "unknown"
