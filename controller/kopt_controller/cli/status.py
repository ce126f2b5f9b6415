"""``kopt status``: where a run stands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import LOOP, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from kopt_harness.archive import Archive
    from rich.console import Console

    from ..history import RunView

WATCH_S = 2.0
"""Time between two looks."""

RunArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Id or a part of it; default: the latest.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Look again until the run ends.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples("kopt status", "kopt status --watch", "kopt status gdn"),
    )(status)


def status(ctx: typer.Context, run: RunArgument = None, watch: WatchOption = False) -> None:
    """Show whether a run is running, what it measured last, and what waits for a person."""
    from kopt_harness.archive import Archive

    state = state_of(ctx)
    archive = Archive(state.root.local)
    view = _look(archive, run)
    shown = ""
    while watch and view is not None and view.state == "running":
        last = view.records[-1].key if view.records else "starting"
        line = f"{view.run.id}: {len(view.records)} records, {last}"
        if line != shown:
            note(state, line)
            shown = line
        time.sleep(WATCH_S)
        view = _look(archive, view.run.id)
    document: dict[str, Any] = {"run": None} if view is None else view.document()

    def human(console: Console) -> None:
        if view is None:
            console.print("No runs yet: kopt round --definition DEF starts one.")
        else:
            _print(console, document)

    emit(state, document, human)


def _look(archive: Archive, run: str | None) -> RunView | None:
    from ..history import list_runs, view_run

    if run is not None:
        return view_run(archive.run(run))
    views = list_runs(archive).views
    return views[-1] if views else None


def _print(console: Console, document: dict[str, Any]) -> None:
    from ..history import ROUND_COLUMNS, ROUND_NUMERIC, round_row

    planned, closed = document["rounds_planned"], len(document["rounds"])
    console.print(f"Run {document['run']}: {document['state']}")
    console.print(
        f"{document['definition']} on {document['target']}, agent {document['agent']}, "
        f"{closed} of {planned} rounds closed, {document['records']} records"
    )
    if document["last"] is not None:
        console.print(f"Last record: {document['last']['key']} at {document['last']['time']}")
    if document["rounds"]:
        rows = [round_row(document["run"], each)[1:] for each in document["rounds"]]
        print_table(console, ROUND_COLUMNS[1:], rows, numeric=ROUND_NUMERIC)
    if document["promotable"] is not None:
        console.print(f"Waits for a person: kopt promote {document['promotable']}")
    if document["state"] == "interrupted":
        console.print(f"Not finished: kopt resume {document['run']}")
