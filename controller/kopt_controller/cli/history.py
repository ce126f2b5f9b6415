"""``kopt history``: all rounds of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, TargetOption, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console

DefinitionOption = Annotated[
    str | None,
    typer.Option("--definition", metavar="DEF", help="Only runs of this definition."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples("kopt history", "kopt history --definition gdn_decode --target cpu"),
    )(history)


def history(
    ctx: typer.Context, definition: DefinitionOption = None, target: TargetOption = None
) -> None:
    """List rounds and promotions, oldest first, with their decisions."""
    from kopt_harness.archive import Archive

    from ..history import (
        PROMOTION_COLUMNS,
        PROMOTION_NUMERIC,
        ROUND_COLUMNS,
        ROUND_NUMERIC,
        list_runs,
        promotion_row,
        round_row,
    )

    state = state_of(ctx)
    name = None if definition is None else state.catalog.resolve(definition).name
    found = list_runs(Archive(state.root.local))
    runs = [
        view.document()
        for view in found.views
        if name in (None, view.manifest.definition) and target in (None, view.manifest.target)
    ]

    promotions = [
        view.document()
        for view in found.promotions
        if name in (None, view.definition) and target in (None, view.target)
    ]

    def human(console: Console) -> None:
        rows = [round_row(run["run"], each) for run in runs for each in run["rounds"]]
        if rows:
            print_table(console, ROUND_COLUMNS, rows, numeric=ROUND_NUMERIC)
        else:
            console.print("No closed rounds yet: kopt round --definition DEF runs one.")
        if promotions:
            console.print("Promotions by kopt promote:")
            rows = [promotion_row(each) for each in promotions]
            print_table(console, PROMOTION_COLUMNS, rows, numeric=PROMOTION_NUMERIC)

    for problem in found.problems:
        note(state, f"note: {problem}")
    document = {"runs": runs, "promotions": promotions, "problems": list(found.problems)}
    emit(state, document, human)
