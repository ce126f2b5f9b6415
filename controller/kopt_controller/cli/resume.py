"""``kopt resume``: continues a run that was stopped or killed."""

from __future__ import annotations

from typing import Annotated

import typer

from ._common import LOOP, examples, note, progress, state_of
from ._loop import harness_maker, notifier
from .round import ExitCodeOption, show

RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Id or a part of it; default: the latest unfinished run."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples("kopt resume", "kopt resume 20261129-141722-gdn_decode-cpu-1f2e"),
    )(resume)


def resume(ctx: typer.Context, run: RunArgument = None, exit_code: ExitCodeOption = False) -> None:
    """Continue a run; completed measurements are reused, the interrupted one is taken anew.

    A finished run is only read: its rounds are decided again from what was recorded.
    """
    from ..campaign import open_campaign

    state = state_of(ctx)
    with progress(state, "resuming") as bar:
        notify = notifier(state, bar)
        campaign = open_campaign(state.root, run, harness_maker(state, notify), notify)
        note(state, f"run {campaign.run.id}")
        notify.keep(campaign.run.folder)
        result = campaign.execute()
    show(state, result.document(), exit_code=exit_code)
