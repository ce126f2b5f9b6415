"""``kopt skills``: what coding agents should know, and putting it where they look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from kopt_harness.errors import NotFoundError, UsageError

from ._common import AGENTS, emit, examples, only_group, print_table, state_of

_SHOWN = 110
"""Characters of a description that a table shows."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(name="skills", help="Instructions for coding agents.")
    group.callback(invoke_without_command=True)(only_group)
    group.command("list", epilog=examples("kopt skills list --json"))(list_)
    group.command(
        epilog=examples(
            "kopt skills install --for claude",
            "kopt skills install --for codex --dir my-project/.agents/skills",
        )
    )(install)
    app.add_typer(group, rich_help_panel=AGENTS)


def list_(ctx: typer.Context) -> None:
    """List the skills that came with kopt."""
    from ..skills import find_skills, read_skills

    state = state_of(ctx)
    found = read_skills(find_skills())
    document = {
        "skills": [
            {"name": each.name, "description": each.description, "folder": str(each.folder)}
            for each in found
        ]
    }
    rows = [(each.name, _shortened(each.description)) for each in found]
    emit(state, document, lambda console: print_table(console, ("skill", "for what"), rows))


def install(
    ctx: typer.Context,
    program: Annotated[
        str, typer.Option("--for", metavar="claude|codex", help="Whose folder of skills.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all of them.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="D", help="Folder of skills; default: the user's own."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace skills that were changed by hand, too.")
    ] = False,
) -> None:
    """Copy skills to where claude (~/.claude/skills) or codex (~/.agents/skills) looks.

    A project has such a folder as well, .claude/skills or .agents/skills at its top: name it with
    --dir. What somebody has changed is not replaced, and then nothing is written.
    """
    from ..skills import PLACES, find_skills, install_skills, read_skills

    state = state_of(ctx)
    if program not in PLACES:
        raise UsageError(
            f"nothing is known of the program {program!r}", hint=f"one of {', '.join(PLACES)}"
        )
    known = {each.name: each for each in read_skills(find_skills())}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise NotFoundError(f"no skill {unknown[0]!r}", hint=f"one of {', '.join(known)}")
    place = (Path.home() / PLACES[program] if folder is None else folder.expanduser()).absolute()
    chosen = [known[name] for name in dict.fromkeys(names or known)]
    done = install_skills(chosen, place, force=force)
    document = {
        "for": program,
        "folder": str(place),
        "skills": [{"name": each.name, "action": each.action} for each in done],
    }
    rows = [(each.name, each.action, each.folder) for each in done]
    emit(state, document, lambda console: print_table(console, ("skill", "", "folder"), rows))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
