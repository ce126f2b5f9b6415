"""``kopt promote-dispatch``: a candidate for the sizes at which it wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, emit, examples, note, print_table, progress, state_of
from ._loop import harness_maker, notifier

if TYPE_CHECKING:
    from rich.console import Console

WhatArgument = Annotated[
    str, typer.Argument(metavar="RUN/ROUND", help="A round whose best candidate was swept.")
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Make and archive the dispatcher; measure nothing.")
]
ExitCodeOption = Annotated[
    bool, typer.Option("--exit-code", help="1 unless the dispatcher was promoted.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "promote-dispatch",
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt promote-dispatch 20261129-141722-gdn_decode-h200-1f2e/2 --dry-run",
            "kopt promote-dispatch 20261129-141722-gdn_decode-h200-1f2e/2",
        ),
    )(promote_dispatch)


def promote_dispatch(
    ctx: typer.Context,
    what: WhatArgument,
    dry_run: DryOption = False,
    exit_code: ExitCodeOption = False,
) -> None:
    """Put a candidate behind a rule for one range of an axis, and promote both as one solution.

    The range is learned from the sweep of the round; what it does not cover stays with the
    incumbent of that round. The dispatcher is verified like any candidate: all workloads, every
    condition. An incumbent that is a dispatcher already gets one more rule. Parts are all of
    one language.
    """
    from kopt_harness.archive import Archive
    from kopt_harness.errors import UsageError
    from kopt_harness.targets import require_present

    from ..config import load_config
    from ..dispatch import dispatcher, with_rule
    from ..reverify import find_dispatch, find_promotable, reverify

    state = state_of(ctx)
    archive = Archive(state.root.local)
    found = find_dispatch(state.catalog, archive, what)
    if found.rule is None:
        raise UsageError(
            f"{found.candidate.name} wins in no range of an axis without losing in it",
            hint=f"kopt history shows how it did; kopt promote {what} takes it everywhere",
        )
    table = with_rule(found.incumbent, found.candidate, found.rule)
    made = dispatcher(table, found.definition, archive.get)
    archive.put(made)
    note(state, f"made {made.name} ({made.sha256[:12]}): {made.description}")
    outcome = None
    if not dry_run:
        promotable = find_promotable(state.catalog, archive, made.sha256, found.target)
        require_present(promotable.target)
        named = None if state.config is None else str(state.config)
        config = load_config(state.root.configs, named, {})
        with progress(state, f"verifying {made.name}") as bar:
            notify = notifier(state, bar)
            maker = harness_maker(state, notify)
            outcome = reverify(state.catalog, promotable, config, maker, notify=notify)
    document = {
        "dispatcher": {"name": made.name, "sha256": made.sha256},
        "rule": found.rule._asdict(),
        "table": table.model_dump(mode="json"),
        "promotion": None if outcome is None else outcome.document(),
    }

    def human(console: Console) -> None:
        console.print(f"{made.name} ({made.sha256[:12]})")
        rows: list[tuple[object, ...]] = [(r.axis, r.low, r.high, r.part.name) for r in table.rules]
        rows.append(("otherwise", None, None, table.otherwise.name))
        print_table(console, ("axis", "from", "to", "served by"), rows, numeric=("from", "to"))
        if outcome is None:
            console.print(f"Not measured yet: kopt promote {made.sha256[:12]}")
        else:
            console.print(f"{'Promoted' if outcome.applied else 'Not promoted'}: {outcome.detail}")

    emit(state, document, human)
    if exit_code and not (outcome is not None and outcome.applied):
        raise typer.Exit(1)
