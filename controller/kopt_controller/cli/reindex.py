"""``kopt reindex``: makes the index of the archive again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from ._common import EVIDENCE, emit, examples, note, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=EVIDENCE, epilog=examples("kopt reindex"))(reindex)


def reindex(ctx: typer.Context) -> None:
    """Read all journals again, and make the index that the other commands ask from them.

    It is never needed for correctness: an index that is missing, damaged or behind is brought up
    to date by whoever asks it. The journals are not changed.
    """
    from ..indexed import open_index

    state = state_of(ctx)
    start = time.monotonic()
    with open_index(state.root.local) as index:
        index.rebuild()
        counts, problems = index.counts(), index.problems()
    seconds = round(time.monotonic() - start, 3)
    for problem in problems:
        note(state, f"note: {problem}")

    def human(console: Console) -> None:
        named = ", ".join(f"{count} {name}" for name, count in counts.items())
        console.print(f"{named} in {seconds} s")

    emit(state, {**counts, "problems": problems, "seconds": seconds}, human)
