"""``kopt status``: where a run stands."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import (
    LOOP,
    AppState,
    emit,
    examples,
    live_lines,
    note,
    print_table,
    shows_live,
    state_of,
)
from ._common import live_blocks as show_blocks

if TYPE_CHECKING:
    from kopt_harness.archive import Archive
    from kopt_harness.catalog import Catalog
    from kopt_harness.index import Index
    from rich.console import Console

    from ..history import RunView
    from ..metering import RunCosts
    from ..report import Block

WATCH_S = 2.0
"""Time between two looks."""

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Id or a part of it; default: the newest that runs, else the newest."
    ),
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
    a run too, and is shown by its own id. With --watch it stays and follows the run: on a terminal
    as one screen that is kept up to date, else as one line on stderr for each change, with the
    time and the id of the run; Ctrl-C ends the look, not the run.
    """
    from kopt_harness.archive import Archive

    from ..history import RunView, find_run
    from ..metering import read_costs

    state = state_of(ctx)
    if (sweep := _sweep(state, run, watch=watch)) is not None:
        emit(state, sweep, lambda console: _print_sweep(console, sweep))
        return
    archive = Archive(state.root.local)
    view = find_run(archive, run)
    if watch and isinstance(view, RunView) and view.state == "running":
        _follow(state, view)
        view = find_run(archive, view.run.id)
    document: dict[str, Any] = {"run": None} if view is None else view.document()
    if isinstance(view, RunView):
        costs = read_costs(view.run.folder, view.records)
        document["cost"] = costs.document()
        document["limit"] = _limit(view, costs)
        steers = view.pending_steers
        document["pending_steers"] = [each.model_dump(mode="json") for each in steers]
    if view is not None:
        definition, target = document["definition"], document["target"]
        document["retained"] = _retained(state.catalog, definition, target)
        document["problems"] = _problems(archive, view.run.id)
        for problem in document["problems"]:
            note(state, f"note: {problem}")

    def human(console: Console) -> None:
        if view is None:
            console.print("No runs yet: kopt round --definition DEF starts one.")
        elif document["kind"] == "promote":
            _print_promotion(console, document)
        else:
            _print(console, document)

    emit(state, document, human)


def _limit(view: RunView, costs: RunCosts) -> dict[str, Any] | None:
    """The limit that has ended it, by its manifest: ``kopt resume`` needs a higher one."""
    from ..metering import reached

    total, limits = costs.total, view.manifest.config.limits
    if view.state != "interrupted" or total is None:
        return None
    found = reached(limits, total, costs.wall_s)
    return None if found is None else {"name": found.name, "used": found.used, "limit": found.limit}


def _problems(archive: Archive, run: str) -> list[str]:
    """What the index has found amiss in the files of a run."""
    from ..indexed import open_index

    with open_index(archive.folder) as index:
        return [each for each in index.problems() if each.startswith(f"{run}: ")]


def _follow(state: AppState, view: RunView) -> None:
    """Shows a campaign until it ends or the user has seen enough."""
    from ..live import Follower, live_blocks, summary_line

    follower = Follower(view.run, state.catalog)
    follower.advance()
    shown = ""

    def lines() -> tuple[Block, ...]:
        follower.advance()
        return live_blocks(follower.board)

    with suppress(KeyboardInterrupt), show_blocks(state, lines):
        while follower.state == "running":
            line = summary_line(follower.board)
            if line != shown and not shows_live(state):
                note(state, _logged(view.run.id, line))
            shown = line
            time.sleep(WATCH_S)
            if not shows_live(state):
                follower.advance()


def _logged(run: str, line: str) -> str:
    """A line of a log, which may have those of several runs."""
    return f"{datetime.now(UTC).isoformat(timespec='seconds')} {run} {line}"


def _sweep(state: AppState, name: str | None, *, watch: bool) -> dict[str, Any] | None:
    """The sweep that was named; without a name one that is running, or the last if all are."""
    from ..indexed import open_index
    from ..kinds import CAMPAIGN, PROMOTE
    from ..sweeping import find_sweep, running_sweep, sweep_document

    with open_index(state.root.local) as index:
        found = find_sweep(index, name)
        if name is None:
            is_alone = index.count(CAMPAIGN, PROMOTE) == 0
            found = running_sweep(index) or (found if is_alone else None)
        if found is None:
            return None
        document = sweep_document(index, found)
        if watch and document["state"] == "running":
            document = _follow_sweep(state, index, document)
        return document


def _follow_sweep(state: AppState, index: Index, document: dict[str, Any]) -> dict[str, Any]:
    """Shows a sweep until it ends or the user has seen enough; what it came to."""
    from kopt_harness.watch import progress_lines

    from ..sweeping import find_sweep, sweep_document

    name, found, shown = document["run"], document, ""

    def lines() -> list[str]:
        return progress_lines(found["progress"]) if found["progress"] else []

    with suppress(KeyboardInterrupt), live_lines(state, lines):
        while found["state"] == "running":
            # The last line has the counts; what each worker does is for who looks.
            counts = lines()[-1] if lines() else ""
            if counts != shown and not shows_live(state):
                note(state, _logged(name, counts))
            shown = counts
            time.sleep(WATCH_S)
            index.refresh()
            if (run := find_sweep(index, name)) is None:
                break
            found = sweep_document(index, run)
    return found


def _print_sweep(console: Console, document: dict[str, Any]) -> None:
    from kopt_harness.watch import progress_lines

    console.print(f"Sweep {document['run']}: {document['state']}")
    names = ", ".join(f"{s['name']} ({s['sha256'][:12]})" for s in document["solutions"])
    console.print(f"{names} on {document['target']}", soft_wrap=True)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in document["verdicts"].items())
    console.print(f"{counts or 'nothing'} of {document['workloads']} workloads in the journal")
    for line in progress_lines(document["progress"]) if document["progress"] else ():
        console.print(line, soft_wrap=True)
    if document["state"] == "interrupted":
        console.print(f"Not finished: kopt sweep --out-dir {document['folder']} --resume")


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
    if document["cost"] is not None:
        from ..report import cost_line

        console.print(cost_line(document["cost"]), soft_wrap=True)
    for each in document["promotions"]:
        console.print(_promotion_line(each))
    _print_retained(console, document)
    if document["state"] != "finished":
        for each in document["pending_steers"]:
            who = f" ({each['by']})" if each["by"] else ""
            said = f"{each['kind']} {each['value']}".rstrip() + who
            console.print(f"Waits for the next round: {said}", soft_wrap=True)
    if document["promotable"] is not None:
        console.print(f"Waits for a person: kopt promote {document['promotable']}")
    if document["state"] == "interrupted":
        option = ""
        if (limit := document["limit"]) is not None:
            option = f" --{limit['name'].replace('_', '-')} N"
            what = limit["name"].removeprefix("max_")
            console.print(
                f"Limit reached: {limit['used']:.6g} of {limit['limit']:.6g} {what}; "
                "to go on, give it more"
            )
        console.print(f"Not finished: kopt resume {document['run']}{option}")


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
