"""``kopt prompt``: what an agent would be told now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import AGENTS, TargetOption, emit, examples, note, pick_target, progress, state_of
from ._loop import harness_maker, notifier
from .round import DefinitionOption

if TYPE_CHECKING:
    from rich.console import Console

AgentOption = Annotated[
    str, typer.Option("--agent", metavar="A", help="For whom: an agent that writes code.")
]
ModeOption = Annotated[
    str,
    typer.Option(
        "--mode", metavar="full|goal-only", help="goal-only: objective and constraints alone."
    ),
]
DirectionOption = Annotated[
    str | None,
    typer.Option("--direction", metavar="ID", help="Default: what the policy would choose."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=AGENTS,
        epilog=examples(
            "kopt prompt --definition gdn_decode",
            "kopt prompt --definition gdn_decode --target h200 --agent openai --mode goal-only",
        ),
    )(prompt)


def prompt(
    ctx: typer.Context,
    definition: DefinitionOption,
    target: TargetOption = None,
    agent: AgentOption = "claude-code",
    mode: ModeOption = "full",
    direction: DirectionOption = None,
) -> None:
    """Print what an agent would be told now; no agent is asked.

    Without a closed round of the incumbent it is profiled first, as a round does. A goal-only
    prompt needs no profile.
    """
    from ..config import load_config
    from ..prompting import Wanted, current_prompt

    state = state_of(ctx)
    named = None if state.config is None else str(state.config)
    config = load_config(state.root.configs, named, {"agent": agent, "target": target})
    wanted = Wanted(definition, pick_target(config.target).name, agent, mode, direction)
    with progress(state, f"prompt for {agent}") as bar:
        notify = notifier(state, bar)
        found = current_prompt(state.root, wanted, config, harness_maker(state, notify))
    document: dict[str, Any] = {
        "definition": found.task.definition.name,
        "target": found.task.target,
        "agent": agent,
        "mode": found.task.mode,
        "direction": None if found.task.direction is None else found.task.direction.id,
        "prompt": found.prompt.text,
        "sha256": found.prompt.sha256,
        "task": found.task.model_dump(mode="json"),
    }

    def human(console: Console) -> None:
        console.out(found.prompt.text, highlight=False)

    note(state, f"sha256 {found.prompt.sha256}")
    emit(state, document, human)
