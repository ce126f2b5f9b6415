"""``kopt explain``: why a round worked on what it worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import LOOP, emit, examples, state_of
from ._loop import print_blocks

if TYPE_CHECKING:
    from rich.console import Console

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Id or a part of it; default: the newest that has closed a round."
    ),
]
RoundArgument = Annotated[
    str | None, typer.Argument(metavar="ROUND", help="Number of a closed round; default: all.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples("kopt explain", "kopt explain 20261129-141722-gdn_decode-cpu-1f2e 2"),
    )(explain)


def explain(ctx: typer.Context, run: RunArgument = None, number: RoundArgument = None) -> None:
    """Show how each direction scored, which one was taken, and why the others were not."""
    from kopt_harness.archive import Archive
    from kopt_harness.errors import NotFoundError

    from ..explain import explain_blocks, explanation
    from ..history import find_rounds

    state = state_of(ctx)
    found = find_rounds(Archive(state.root.local), run, number)
    if not found:
        raise NotFoundError("no closed round", hint="kopt round --definition DEF runs one")
    document = {
        "run": found[0].view.run.id,
        "rounds": [explanation(each.result) for each in found],
    }

    def human(console: Console) -> None:
        console.print(f"Run {document['run']}")
        for each in found:
            print_blocks(console, explain_blocks(explanation(each.result)))

    emit(state, document, human)
