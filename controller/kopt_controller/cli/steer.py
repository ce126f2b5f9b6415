"""``kopt steer``: a person's word to a run that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import LOOP, emit, examples, state_of

if TYPE_CHECKING:
    from rich.console import Console

    from ..steering import Steer

RunArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Id or a part of it; default: the latest.")
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
    from kopt_harness.errors import NotFoundError, UsageError

    from ..history import RunView, find_run
    from ..steering import STEER_FILE, append_steers, read_steers

    state = state_of(ctx)
    view = find_run(Archive(state.root.local), run)
    if not isinstance(view, RunView):
        raise NotFoundError(
            "no campaign to steer" if view is None else f"{view.run.id!r} is no campaign",
            hint="kopt history lists the runs; kopt round starts one",
        )
    given = _steers(
        {
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
    )
    path = view.run.folder / STEER_FILE
    if given:
        if view.state == "finished":
            raise UsageError(
                f"the run {view.run.id!r} is finished", hint="kopt round starts another one"
            )
        append_steers(path, given)
    said = read_steers(path)

    def human(console: Console) -> None:
        console.print(f"Run {view.run.id}: {view.state}")
        for each in said:
            console.print(f"{each.time}  {each.sentence}", soft_wrap=True)
        if not said:
            console.print("Nothing was said to it yet.")

    steers = [each.model_dump(mode="json") for each in said]
    emit(state, {"run": view.run.id, "added": len(given), "steers": steers}, human)


def _steers(options: dict[str, object]) -> list[Steer]:
    from ..reverify import user
    from ..steering import Steer

    by, found = user() or "", []
    for kind, option in options.items():
        values = option if isinstance(option, list) else [] if option is None else [option]
        for value in values:
            _check(kind, str(value))
            found.append(Steer.model_validate({"kind": kind, "value": str(value), "by": by}))
    return found


def _check(kind: str, value: str) -> None:
    """Refuses at once what a round could not follow."""
    from kopt_harness.errors import NotFoundError

    from ..agents import get_agent
    from ..directions import load_directions

    if kind in ("block", "recommend") and value not in load_directions():
        known = ", ".join(load_directions())
        raise NotFoundError(f"unknown direction {value!r}", hint=f"directions are {known}")
    if kind == "agent":
        get_agent(value)
    languages = {name for each in load_directions().values() for name in each.languages}
    if kind == "language" and value not in languages:
        raise NotFoundError(
            f"unknown language {value!r}", hint=f"languages are {', '.join(sorted(languages))}"
        )
