"""``kopt resume``: continues a run that was stopped or killed."""

from __future__ import annotations

from typing import Annotated

import typer

from ._common import LOOP, examples, note, progress, state_of
from ._loop import (
    DeviceLimitOption,
    DollarLimitOption,
    TokenLimitOption,
    WallLimitOption,
    harness_maker,
    notifier,
    with_costs,
)
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


def resume(
    ctx: typer.Context,
    run: RunArgument = None,
    max_dollars: DollarLimitOption = None,
    max_tokens: TokenLimitOption = None,
    max_device_s: DeviceLimitOption = None,
    max_wall_s: WallLimitOption = None,
    exit_code: ExitCodeOption = False,
) -> None:
    """Continue a run; completed measurements are reused, the interrupted one is taken anew.

    A finished run is only read: its rounds are decided again from what was recorded. A run that
    has reached a limit goes on where it is given a higher one; what it had spent counts.
    """
    from ..campaign import open_campaign

    state = state_of(ctx)
    with progress(state, "resuming") as bar:
        notify = notifier(state, bar)
        limits = {
            "max_dollars": max_dollars,
            "max_tokens": max_tokens,
            "max_device_s": max_device_s,
            "max_wall_s": max_wall_s,
        }
        maker = harness_maker(state, notify)
        campaign = open_campaign(state.root, run, maker, notify, limits)
        note(state, f"run {campaign.run.id}")
        notify.keep(campaign.run.folder)
        result = campaign.execute()
    document = with_costs(result.document(), campaign.run.folder)
    show(state, document, exit_code=exit_code)
