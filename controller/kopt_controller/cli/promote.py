"""``kopt promote``: applies a promotion after verifying it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, TargetOption, emit, examples, print_table, progress, state_of
from ._loop import harness_maker, notifier

if TYPE_CHECKING:
    from rich.console import Console

    from ..result import PromoteOutcome
    from ._common import AppState

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
RecordedOption = Annotated[
    bool,
    typer.Option(
        "--recorded", help="Apply what the round has decided, and measure nothing: for RUN/ROUND."
    ),
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
            "kopt promote 20261129-141722-gdn_decode-h200-1f2e/1 --recorded",
        ),
    )(promote)


def promote(
    ctx: typer.Context,
    what: WhatArgument = None,
    target: TargetOption = None,
    override: OverrideOption = None,
    recorded: RecordedOption = False,
    exit_code: ExitCodeOption = False,
) -> None:
    """Make an archived candidate the incumbent, if every condition holds once more.

    The archived bytes are swept over all workloads against the present incumbent, by workers
    that have run nothing before. If all holds they are built again in an empty cache, and other
    workers check and time them once more; on a GPU a profiler outside of their process has to
    agree. Every condition is printed with its number; what is required stands under [conditions]
    of the file that --config names.

    With --recorded the conditions are those of the round, all of which must have held, and the
    target need not be here: for archives that were brought from another machine.
    """
    state = state_of(ctx)
    if recorded:
        result = _applied(state, what, target, override)
    else:
        result = _verified(state, what, target, tuple(override or ()))

    def human(console: Console) -> None:
        ref = result.candidate
        console.print(f"{ref.name} ({ref.sha256[:12]}) against {result.incumbent.name}")
        rows = [("ok" if c.ok else "NO", c.name, c.measured, c.required) for c in result.conditions]
        print_table(console, ("", "condition", "measured", "required"), rows)
        console.print(f"{'Promoted' if result.applied else 'Not promoted'}: {result.detail}")

    emit(state, result.document(), human)
    if exit_code and not result.applied:
        raise typer.Exit(1)


def _verified(
    state: AppState, what: str | None, target: str | None, overridden: tuple[str, ...]
) -> PromoteOutcome:
    from kopt_harness.archive import Archive
    from kopt_harness.targets import require_present

    from ..config import load_config
    from ..reverify import find_promotable, reverify

    named = None if state.config is None else str(state.config)
    config = load_config(state.root.configs, named, {})
    archive = Archive(state.root.local)
    promotable = find_promotable(state.catalog, archive, what, target)
    require_present(promotable.target)
    with progress(state, f"verifying {promotable.candidate.name}") as bar:
        notify = notifier(state, bar)
        return reverify(
            state.catalog,
            promotable,
            config,
            harness_maker(state, notify),
            overridden=overridden,
            notify=notify,
        )


def _applied(
    state: AppState, what: str | None, target: str | None, override: list[str] | None
) -> PromoteOutcome:
    from kopt_harness.archive import Archive
    from kopt_harness.errors import UsageError

    from ..applying import apply_recorded

    if target is not None or override or state.config is not None:
        raise UsageError(
            "--recorded takes target, conditions and flags from the round",
            hint="leave --target, --override and --config out, or --recorded",
        )
    return apply_recorded(state.catalog, Archive(state.root.local), what)
