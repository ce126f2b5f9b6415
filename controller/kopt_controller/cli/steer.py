"""``kopt steer``: a person's word to a run that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import LOOP, emit, examples, state_of

if TYPE_CHECKING:
    from rich.console import Console

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Id or a part of it; default: the newest that runs, else the newest."
    ),
]
BlockOption = Annotated[
    list[str] | None, typer.Option("--block", metavar="DIRECTION", help="Choose it no more.")
]
RecommendOption = Annotated[
    list[str] | None,
    typer.Option("--recommend", metavar="DIRECTION", help="Choose it first, where it fits."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="TEXT", help="A kernel or document for the agent."),
]
NoteOption = Annotated[
    list[str] | None, typer.Option("--note", metavar="TEXT", help="A word for the agent.")
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="A", help="Who proposes from now on.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="M", help="The model that the agent uses.")
]
LanguageOption = Annotated[
    str | None, typer.Option("--language", metavar="L", help="The language of candidates.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget", metavar="S", min=0, help="Seconds after which no further round starts."
    ),
]
FlagOption = Annotated[
    list[str] | None,
    typer.Option("--accept-flag", metavar="FLAG", help="It bars no promotion of this run."),
]
StopOption = Annotated[bool, typer.Option("--stop", help="Start no further round.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples(
            "kopt steer --block hardware --recommend fusion",
            'kopt steer --note "the state fits in shared memory" --language cuda',
            "kopt steer 20261129-141722-gdn_decode-cpu-1f2e --stop",
        ),
    )(steer)


def steer(  # typer passes options by name
    ctx: typer.Context,
    run: RunArgument = None,
    block: BlockOption = None,
    recommend: RecommendOption = None,
    reference: ReferenceOption = None,
    note: NoteOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    language: LanguageOption = None,
    budget: BudgetOption = None,
    accept_flag: FlagOption = None,
    stop: StopOption = False,
) -> None:
    """Tell a run something; it takes effect when its next round starts, and is recorded there.

    Without options, show what was said. The last word counts; to recommend a direction lifts
    its block. A round that is under way is not disturbed.
    """
    from kopt_harness.archive import Archive

    from ..saying import say

    state = state_of(ctx)
    options = {
        "block": block,
        "recommend": recommend,
        "reference": reference,
        "note": note,
        "agent": agent,
        "model": model,
        "language": language,
        "budget": budget,
        "accept-flag": accept_flag,
        "stop": "a person" if stop else None,
    }
    view, added, said = say(Archive(state.root.local), run, options)

    def human(console: Console) -> None:
        console.print(f"Run {view.run.id}: {view.state}")
        for each in said:
            console.print(f"{each.time}  {each.sentence}", soft_wrap=True)
        if not said:
            console.print("Nothing was said to it yet.")

    steers = [each.model_dump(mode="json") for each in said]
    emit(state, {"run": view.run.id, "added": len(added), "steers": steers}, human)
