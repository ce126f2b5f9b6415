"""``kopt promote``: applies a promotion after verifying it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, TargetOption, emit, examples, print_table, progress, state_of
from ._loop import harness_maker, notifier

if TYPE_CHECKING:
    from rich.console import Console

WhatArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SHA|RUN/ROUND",
        help="An archived candidate; default: the latest round that waits for a promotion.",
    ),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="FLAG", help="Accept a flag, on record; may be repeated."),
]
ExitCodeOption = Annotated[
    bool, typer.Option("--exit-code", help="1 unless the promotion was applied.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt promote",
            "kopt promote 20261129-141722-gdn_decode-cpu-1f2e/1",
            "kopt promote 3fa9c2d1 --override timer-disagrees",
        ),
    )(promote)


def promote(
    ctx: typer.Context,
    what: WhatArgument = None,
    target: TargetOption = None,
    override: OverrideOption = None,
    exit_code: ExitCodeOption = False,
) -> None:
    """Make an archived candidate the incumbent, if every condition holds once more.

    The archived bytes are swept over all workloads against the present incumbent, by workers
    that have run nothing before. If all holds they are built again in an empty cache, and other
    workers check and time them once more; on a GPU a profiler outside of their process has to
    agree. Every condition is printed with its number; what is required stands under [conditions]
    of the file that --config names.
    """
    from kopt_harness.archive import Archive
    from kopt_harness.targets import require_present

    from ..config import load_config
    from ..reverify import find_promotable, reverify

    state = state_of(ctx)
    named = None if state.config is None else str(state.config)
    config = load_config(state.root.configs, named, {})
    archive = Archive(state.root.local)
    promotable = find_promotable(state.catalog, archive, what, target)
    require_present(promotable.target)
    with progress(state, f"verifying {promotable.candidate.name}") as bar:
        notify = notifier(state, bar)
        result = reverify(
            state.catalog,
            promotable,
            config,
            harness_maker(state, notify),
            overridden=tuple(override or ()),
            notify=notify,
        )

    def human(console: Console) -> None:
        ref = result.candidate
        console.print(f"{ref.name} ({ref.sha256[:12]}) against {result.incumbent.name}")
        rows = [("ok" if c.ok else "NO", c.name, c.measured, c.required) for c in result.conditions]
        print_table(console, ("", "condition", "measured", "required"), rows)
        console.print(f"{'Promoted' if result.applied else 'Not promoted'}: {result.detail}")

    emit(state, result.document(), human)
    if exit_code and not result.applied:
        raise typer.Exit(1)
