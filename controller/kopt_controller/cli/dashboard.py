"""``kopt dashboard``: a page on this machine that follows a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import LOOP, emit, examples, note, state_of

if TYPE_CHECKING:
    from rich.console import Console

RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        help="Id or a part of it; default: the newest that runs, else the newest.",
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port", metavar="P", min=0, max=65535, help="Of the loopback interface; 0: a free one."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples("kopt dashboard", "kopt dashboard --run gdn --port 8700"),
    )(dashboard)


def dashboard(ctx: typer.Context, run: RunOption = None, port: PortOption = 0) -> None:
    """Show a running campaign in the browser, live, and steer it from there.

    It listens on this machine alone, and answers whoever has the printed address, which is
    another one each time. Over ssh: forward the port (ssh -L P:127.0.0.1:P HOST). Ctrl-C ends it;
    the run does not notice. Needs the extra "dashboard".
    """
    import secrets

    from kopt_harness.archive import Archive
    from kopt_harness.errors import UnavailableError

    try:
        from ..dashboard.hub import Hub
        from ..dashboard.serve import Listener
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the dashboard needs {error.name}, which is not installed",
            hint="pip install -e '.[dashboard]', or look with: kopt status --watch",
        ) from error

    state = state_of(ctx)
    archive = Archive(state.root.local)
    if run is not None:
        run = archive.run(run).id
    hub = Hub(archive, state.catalog, run)
    hub.watched()
    listener = Listener(hub, token=secrets.token_urlsafe(24), port=port)

    def human(console: Console) -> None:
        console.print(f"Dashboard: {listener.url}", soft_wrap=True)
        console.print("Whoever has this address can look and steer. Ctrl-C ends it.")

    emit(state, {"url": listener.url, "run": run}, human)
    listener.serve()
    note(state, "the dashboard has ended; the run goes on")
