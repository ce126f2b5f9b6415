"""``kopt rerun``: a closed round once more, measured anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import LOOP, emit, examples, note, progress, state_of
from ._loop import harness_maker, notifier, print_rounds, with_costs

if TYPE_CHECKING:
    from rich.console import Console

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id or a part of it.")]
RoundArgument = Annotated[str, typer.Argument(metavar="ROUND", help="Number of a closed round.")]
ExitCodeOption = Annotated[
    bool, typer.Option("--exit-code", help="1 unless the decision is the same.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples("kopt rerun 20261129-141722-gdn_decode-cpu-1f2e 2"),
    )(rerun)


def rerun(
    ctx: typer.Context, run: RunArgument, number: RoundArgument, exit_code: ExitCodeOption = False
) -> None:
    """Run a closed round again: same incumbent, memory, seeds and candidates, new measurements.

    It is a run of its own that asks before it promotes, and can be resumed like any other. Where
    the state has changed so that another direction comes first, its agent is asked anew.
    """
    from kopt_harness.targets import get_target, require_present

    from ..rerun import comparison_of, start_rerun

    state = state_of(ctx)
    with progress(state, f"round {number} of {run} again") as bar:
        notify = notifier(state, bar)
        again = start_rerun(state.root, run, number, harness_maker(state, notify), notify)
        require_present(get_target(again.campaign.manifest.target))
        for change in again.changed:
            note(state, f"note: no longer the same, {change}")
        note(state, f"run {again.campaign.run.id}")
        notify.keep(again.campaign.run.folder)
        result = again.campaign.execute()
    same = comparison_of(again.before, result.rounds[0])
    document = {
        **with_costs(result.document(), again.campaign.run.folder),
        "rerun_of": again.campaign.manifest.rerun_of,
        "changed": list(again.changed),
        "same": same,
    }

    def human(console: Console) -> None:
        print_rounds(console, document)
        for name in ("direction", "candidates", "best", "decision"):
            console.print(f"{name}: {'the same' if same[name] else 'another'}")
        console.print(f"Then: {same['before']['label']} - {same['before']['reason']}")
        console.print(f"Now: {same['after']['label']} - {same['after']['reason']}")

    emit(state, document, human)
    if exit_code and not same["decision"]:
        raise typer.Exit(1)
