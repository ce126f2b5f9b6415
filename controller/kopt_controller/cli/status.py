"""``kopt status``: where a run stands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import LOOP, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from kopt_harness.catalog import Catalog
    from rich.console import Console

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
    """Show whether a run is running, what it measured last, and what waits for a person.

    Also which promotions followed it, and what is retained now. A promotion by kopt promote is
    a run too, and is shown by its own id.
    """
    from kopt_harness.archive import Archive

    from ..history import find_run

    state = state_of(ctx)
    archive = Archive(state.root.local)
    view = find_run(archive, run)
    shown = ""
    while watch and view is not None and view.state == "running":
        last = view.records[-1].key if view.records else "starting"
        line = f"{view.run.id}: {len(view.records)} records, {last}"
        if line != shown:
            note(state, line)
            shown = line
        time.sleep(WATCH_S)
        view = find_run(archive, view.run.id)
    document: dict[str, Any] = {"run": None} if view is None else view.document()
    if view is not None:
        definition, target = document["definition"], document["target"]
        document["retained"] = _retained(state.catalog, definition, target)

    def human(console: Console) -> None:
        if view is None:
            console.print("No runs yet: kopt round --definition DEF starts one.")
        elif document["kind"] == "promote":
            _print_promotion(console, document)
        else:
            _print(console, document)

    emit(state, document, human)


def _retained(catalog: Catalog, definition: str, target: str) -> dict[str, str] | None:
    """What ``retained.toml`` names now; None where it names nothing that is there."""
    from kopt_harness.errors import KoptError

    try:
        incumbent = catalog.incumbent(catalog.resolve_exact(definition), target)
    except KoptError:
        # A run outlives its definition, which must not hide what it measured.
        return None
    if incumbent is None:
        return None
    return {"name": incumbent.name, "sha256": incumbent.sha256}


def _print(console: Console, document: dict[str, Any]) -> None:
    from ..rows import ROUND_COLUMNS, ROUND_NUMERIC, round_row

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
    for each in document["promotions"]:
        console.print(_promotion_line(each))
    _print_retained(console, document)
    if document["promotable"] is not None:
        console.print(f"Waits for a person: kopt promote {document['promotable']}")
    if document["state"] == "interrupted":
        console.print(f"Not finished: kopt resume {document['run']}")


def _print_promotion(console: Console, document: dict[str, Any]) -> None:
    console.print(f"Run {document['run']}: {document['state']}")
    console.print(f"{document['definition']} on {document['target']}, asked for by {_by(document)}")
    rows = [
        ("ok" if each["ok"] else "NO", each["name"], each["measured"], each["required"])
        for each in document["conditions"] or ()
    ]
    if rows:
        print_table(console, ("", "condition", "measured", "required"), rows)
    if document["detail"] is not None:
        applied = "Promoted" if document["applied"] else "Not promoted"
        console.print(f"{applied}: {document['detail']}")
    _print_retained(console, document)
    if document["state"] == "interrupted":
        sha256 = document["candidate"]["sha256"][:12]
        console.print(f"It did not come to its end: kopt promote {sha256} begins again")


def _promotion_line(promotion: dict[str, Any]) -> str:
    candidate = promotion["candidate"]
    return (
        f"Promoted by {_by(promotion)} at {promotion['created']}: {candidate['name']} "
        f"({candidate['sha256'][:12]}), run {promotion['run']}"
    )


def _by(promotion: dict[str, Any]) -> str:
    return promotion["by"] or "somebody"


def _print_retained(console: Console, document: dict[str, Any]) -> None:
    retained = document["retained"]
    if retained is not None:
        console.print(f"Incumbent now: {retained['name']} ({retained['sha256'][:12]})")
