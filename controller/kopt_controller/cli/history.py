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
LastOption = Annotated[
    int, typer.Option("--last", metavar="N", min=0, help="Only the latest N runs; 0: all.")
]
DEFAULT_LAST = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples("kopt history", "kopt history --definition gdn_decode --target cpu"),
    )(history)


def history(
    ctx: typer.Context,
    definition: DefinitionOption = None,
    target: TargetOption = None,
    last: LastOption = DEFAULT_LAST,
) -> None:
    """List rounds and promotions, oldest first, with their decisions."""
    from ..indexed import history_document, open_index
    from ..metering import read_costs
    from ..report import cost_line
    from ..rows import (
        PROMOTION_COLUMNS,
        ROUND_COLUMNS,
        ROUND_NUMERIC,
        promotion_row,
        round_row,
    )

    state = state_of(ctx)
    name = None if definition is None else state.catalog.resolve(definition).name
    with open_index(state.root.local) as index:
        document = history_document(index, definition=name, target=target, last=last or None)
    for run in document["runs"]:
        run["cost"] = read_costs(state.root.local / "runs" / run["run"]).document()

    def human(console: Console) -> None:
        rows = [round_row(run["run"], each) for run in document["runs"] for each in run["rounds"]]
        if rows:
            print_table(console, ROUND_COLUMNS, rows, numeric=ROUND_NUMERIC)
            for run in document["runs"]:
                if run["cost"] is not None and run["cost"]["total"]["calls"]:
                    console.print(f"{run['run']}: {cost_line(run['cost'])}", soft_wrap=True)
        else:
            console.print("No closed rounds yet: kopt round --definition DEF runs one.")
        if document["promotions"]:
            console.print("Promotions by kopt promote:")
            rows = [promotion_row(each) for each in document["promotions"]]
            print_table(console, PROMOTION_COLUMNS, rows)

    for problem in document["problems"]:
        note(state, f"note: {problem}")
    left_out = document["runs_in_all"] - len(document["runs"])
    if left_out:
        note(state, f"note: {left_out} earlier runs are left out; --last 0 shows all")
    emit(state, document, human)
