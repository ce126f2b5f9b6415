"""``kopt ablate``: what each mechanism is worth."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._common import (
    LOOP,
    StoppedEarlyError,
    TargetOption,
    emit,
    examples,
    note,
    pick_target,
    print_table,
    progress,
    state_of,
)
from ._loop import DeviceLimitOption, DollarLimitOption, harness_maker_in, notifier

if TYPE_CHECKING:
    from rich.console import Console

    from ..ablation import Ablation
    from ._common import AppState

DefinitionArgument = Annotated[
    str | None,
    typer.Argument(metavar="[DEF]", help="Definition; left out with --resume."),
]
SeedsOption = Annotated[int, typer.Option("--seeds", metavar="N", min=2, help="Seeds of each arm.")]
RoundsOption = Annotated[
    int | None, typer.Option("--rounds", metavar="N", min=1, help="Rounds of each campaign.")
]
CandidatesOption = Annotated[
    int | None,
    typer.Option("--candidates", metavar="N", min=1, help="Candidates of a round at most."),
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="A", help="Who proposes; default: knobs.")
]
StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="SOLUTION", help="Start of all campaigns; default: incumbent."),
]
WholeOption = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="SEL", help="What stands for the whole; default: all."),
]
SingleOption = Annotated[
    str | None,
    typer.Option("--single", metavar="SEL", help="The single workload; default: the middle one."),
]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="M", help="To add alone; default: each that there is."),
]
ReuseOption = Annotated[
    bool,
    typer.Option("--reuse", help="Gate and sweep a pair once for all campaigns: cheaper."),
]
TotalOption = Annotated[
    float | None,
    typer.Option("--total-s", metavar="S", min=0, help="No campaign starts after so many seconds."),
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="ID", help="Go on with an ablation; 'last' is the latest."),
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the tables there.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOP,
        epilog=examples(
            "kopt ablate gdn_decode --seeds 5 --rounds 3",
            "kopt ablate gdn_decode --mechanism memory --single 16 --markdown ablation.md",
            "kopt ablate --resume last",
        ),
    )(ablate)


def ablate(
    ctx: typer.Context,
    definition: DefinitionArgument = None,
    seeds: SeedsOption = 5,
    rounds: RoundsOption = None,
    candidates: CandidatesOption = None,
    agent: AgentOption = None,
    target: TargetOption = None,
    start: StartOption = None,
    workload: WholeOption = None,
    single: SingleOption = None,
    mechanism: MechanismOption = None,
    reuse: ReuseOption = False,
    total_s: TotalOption = None,
    max_dollars: DollarLimitOption = None,
    max_device_s: DeviceLimitOption = None,
    resume: ResumeOption = None,
    markdown: MarkdownOption = None,
) -> None:
    """Measure what each mechanism is worth: the goal alone, one mechanism at a time, all of kopt.

    The same agent has the same budget in every arm, for one workload and for the whole definition,
    with several seeds; --max-dollars and --max-device-s are for each campaign. Whatever a campaign
    has found is measured once more, against the common start and in one epoch. Nothing is retained.
    It takes many campaigns, may be stopped at any time, and goes on with --resume; what --total-s
    has ended is shown as far as it is, with exit code 130. Mechanisms of the prompt are n/a for an
    agent that reads none.
    """
    from kopt_harness.errors import UsageError

    from ..ablation import Wish, open_ablation, start_ablation
    from ..config import load_config

    state = state_of(ctx)
    if (definition is None) == (resume is None):
        raise UsageError("name a definition, or an ablation with --resume", hint="kopt ablate -h")
    named = None if state.config is None else str(state.config)
    with progress(state, "ablation") as bar:
        notify = notifier(state, bar)
        maker = harness_maker_in(notify)
        if definition is None:
            name = None if resume == "last" else resume
            found = open_ablation(state.root, name, maker, notify)
        else:
            flags: dict[str, object] = {
                "rounds": rounds,
                "max_candidates": candidates,
                "agent": agent,
            }
            flags |= {"target": pick_target(target).name}
            flags |= {"limits.max_dollars": max_dollars, "limits.max_device_s": max_device_s}
            config = load_config(state.root.configs, named, flags)
            wish = Wish(
                definition=definition,
                config=config,
                seeds=seeds,
                start=start,
                whole=_selectors(workload) or ("all",),
                single=single,
                mechanisms=_selectors(mechanism),
                reuse=reuse,
                total_s=total_s,
            )
            found = start_ablation(state.root, wish, maker, notify)
        note(state, f"ablation {found.run.id}")
        document = _run(found)
    _show(state, document, markdown)
    if not document["complete"]:
        raise StoppedEarlyError


def _selectors(given: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for value in given or () for part in value.split(","))


def _run(ablation: Ablation) -> dict[str, object]:
    from ..ablation import document_of

    results = ablation.execute()
    return document_of(ablation.run.id, ablation.plan, results, ablation.environment())


def _show(state: AppState, document: dict[str, object], markdown: Path | None) -> None:
    from datetime import UTC, datetime

    from kopt_harness.files import write_output

    from ..ablation import markdown_of
    from ..ablation.report import arm_rows, caveat, effect_rows

    if markdown is not None:
        command = shlex.join(["kopt", *sys.argv[1:]])
        write_output(markdown, markdown_of(document, f"{datetime.now(UTC):%Y-%m-%d}", command))

    def human(console: Console) -> None:
        console.print(f"Ablation {document['ablation']}: time over that of the start")
        columns = ("arm", "one workload", "whole definition", "candidates")
        print_table(console, columns, arm_rows(document), numeric=("candidates",))
        console.print("Effects: time with over time without; below 1 is a gain")
        print_table(console, ("effect", "one workload", "whole definition"), effect_rows(document))
        if said := caveat(document):
            console.print(said)
        if not document["complete"]:
            console.print(f"Incomplete; go on with: kopt ablate --resume {document['ablation']}")

    emit(state, document, human)
