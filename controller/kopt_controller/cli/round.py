"""``kopt round``: the loop, from state to decision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._common import (
    LOOP,
    AppState,
    SeedOption,
    TargetOption,
    WorkloadOption,
    emit,
    examples,
    note,
    pick_target,
    progress,
    state_of,
)
from ._loop import (
    DeviceLimitOption,
    DollarLimitOption,
    TokenLimitOption,
    WallLimitOption,
    harness_maker,
    notifier,
    print_rounds,
    with_costs,
)

DefinitionOption = Annotated[
    str,
    typer.Option(
        "--definition", metavar="DEF", help="Definition: alias, id, or unambiguous prefix."
    ),
]
RoundsOption = Annotated[
    int | None, typer.Option("--rounds", metavar="N", min=1, help="Rounds; default: 1.")
]
CandidatesOption = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        metavar="N",
        min=1,
        help="Candidates that a round gates at most; default: 4, on a CPU 3.",
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="A", help="Who proposes candidates; default: knobs."),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="P",
        help="How to search: assisted, goal-only, pes, single-lineage; default: assisted.",
    ),
]
PromotionOption = Annotated[
    str | None,
    typer.Option(
        "--promotion",
        metavar="auto|ask",
        help="auto moves retained.toml, ask leaves it to kopt promote; default: the agent's own.",
    ),
]
InboxOption = Annotated[
    Path | None, typer.Option("--inbox", metavar="DIR", help="Folder of the inbox agent.")
]
ExitCodeOption = Annotated[
    bool, typer.Option("--exit-code", help="1 unless the last round promotes.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "round",
        rich_help_panel=LOOP,
        epilog=examples(
            "kopt round --definition gdn_decode",
            "kopt round --definition gdn_decode --rounds 5 --promotion ask",
            "kopt round --definition gdn_decode --agent inbox --inbox ~/candidates",
            "kopt round --definition gdn_decode --rounds 6 --policy pes",
            "kopt round --definition gdn_decode --agent claude-code --max-dollars 5",
        ),
    )(round_)


def round_(  # typer passes options by name
    ctx: typer.Context,
    definition: DefinitionOption,
    rounds: RoundsOption = None,
    candidates: CandidatesOption = None,
    agent: AgentOption = None,
    policy: PolicyOption = None,
    target: TargetOption = None,
    promotion: PromotionOption = None,
    seed: SeedOption = None,
    workload: WorkloadOption = None,
    inbox: InboxOption = None,
    max_dollars: DollarLimitOption = None,
    max_tokens: TokenLimitOption = None,
    max_device_s: DeviceLimitOption = None,
    max_wall_s: WallLimitOption = None,
    exit_code: ExitCodeOption = False,
) -> None:
    """Run rounds: state, direction, candidates, gate, sweep, decision.

    A round measures for minutes and may be stopped at any time: kopt resume continues it, and
    what was measured is not measured again. --workload limits the sweep, which bars promotion.
    """
    from kopt_harness.errors import NotFoundError
    from kopt_harness.targets import require_present

    from ..campaign import start_campaign
    from ..config import load_config

    state = state_of(ctx)
    named = None if state.config is None else str(state.config)
    selectors = [part.strip() for value in workload or () for part in value.split(",")]
    flags = {
        "rounds": rounds,
        "max_candidates": candidates,
        "agent": agent,
        "policy": policy,
        "target": target,
        "promotion": promotion,
        "inbox": None if inbox is None else str(inbox),
        "sweep_workloads": selectors or None,
        "measure.seed": seed,
        "limits.max_dollars": max_dollars,
        "limits.max_tokens": max_tokens,
        "limits.max_device_s": max_device_s,
        "limits.max_wall_s": max_wall_s,
    }
    config = load_config(state.root.configs, named, flags)
    if inbox is not None and not inbox.expanduser().is_dir():
        raise NotFoundError(f"no inbox at {str(inbox)!r}", hint="name a folder that exists")
    # Before anything is written: a run for a target that is not here could never go on.
    require_present(pick_target(config.target))
    with progress(state, f"round of {definition}") as bar:
        notify = notifier(state, bar)
        maker = harness_maker(state, notify)
        campaign = start_campaign(state.root, definition, config, maker, notify)
        note(state, f"run {campaign.run.id}")
        notify.keep(campaign.run.folder)
        result = campaign.execute()
    document = with_costs(result.document(), campaign.run.folder)
    show(state, document, exit_code=exit_code)


def show(state: AppState, document: dict[str, object], *, exit_code: bool) -> None:
    """Prints the rounds; with ``exit_code``, ends with 1 unless the last one promotes."""
    emit(state, document, lambda console: print_rounds(console, document))
    rounds = document["rounds"]
    assert isinstance(rounds, list), "the document of a campaign has a list of rounds"
    if exit_code and not (rounds and rounds[-1]["decision"]["label"].startswith("promote")):
        raise typer.Exit(1)
