"""``kopt mcp``: judging commands as tools of an MCP server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from kopt_harness import __version__
from kopt_harness.errors import NotFoundError, UnavailableError

from ._common import AGENTS, AppState, examples, state_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=AGENTS,
        epilog=examples(
            "kopt mcp",
            "kopt mcp --folder drafts --budget-calls 40 --budget-device-s 900 --budget-file uses",
        ),
    )(mcp)


def mcp(
    ctx: typer.Context,
    folder: Annotated[
        Path,
        typer.Option("--folder", metavar="DIR", help="Where solutions and profiles lie."),
    ] = Path(),
    calls: Annotated[
        int | None,
        typer.Option(
            "--budget-calls", metavar="N", min=0, help="Calls that build or measure; default: any."
        ),
    ] = None,
    device_s: Annotated[
        float | None,
        typer.Option(
            "--budget-device-s", metavar="S", min=0, help="Seconds of these calls; default: any."
        ),
    ] = None,
    budget_file: Annotated[
        Path | None,
        typer.Option(
            "--budget-file", metavar="FILE", help="Where uses are kept; default: nowhere."
        ),
    ] = None,
) -> None:
    """Serve check, bench, gate, compare, profile, build and diagnose as MCP tools over stdio.

    It serves one client and ends with it. Clients may name files of --folder and solutions of the
    root; results come without expected values. A limit that is reached ends the call under way.
    With --budget-file the limits hold for all servers of that file together, also for one that
    is started anew: keep the file where clients cannot write.
    """
    state = state_of(ctx)
    if not folder.is_dir():
        raise NotFoundError(f"no folder {str(folder)!r}", hint="make it, or give another --folder")
    try:
        from ..toolserver.allowance import Allowance
        from ..toolserver.places import Places
        from ..toolserver.running import Commands
        from ..toolserver.tools import Tools, build_server
    except ImportError as error:
        raise UnavailableError(
            f"the server needs the package mcp: {error}", hint="pip install -e '.[mcp]'"
        ) from error
    with tempfile.TemporaryDirectory(prefix="kopt-mcp-") as scratch:
        uses = Path(scratch, "budget") if budget_file is None else budget_file
        commands = Commands(_globals(state), folder, Allowance(uses, calls, device_s))
        tools = Tools(commands, Places([folder, state.root.kernels]))
        build_server(tools, __version__).run()


def _globals(state: AppState) -> list[str]:
    """The global options of the server, for the commands that it runs elsewhere."""
    config = state.config
    chosen = ["--root", str(state.root.path)]
    return chosen if config is None else [*chosen, "--config", str(config.resolve())]
