"""``kopt import``: keep other people's results beside our own, and apart from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="import",
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt import traces/gdn/gdn_decode.jsonl",
            "kopt import their-results their-search --json",
            "kopt audit",
        ),
    )(import_)


def import_(
    ctx: typer.Context,
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR...", help="Result files, or folders of them.")
    ],
) -> None:
    """Store foreign results: traces, result files, tables, searches; they never promote."""
    from kopt_harness.foreign import import_results, read_results

    state = state_of(ctx)
    reading = read_results(paths)
    imported = import_results(state.root.local, reading.results)
    document = {
        "results": len(reading.results),
        "added": imported.added,
        "known": imported.known,
        "files": [file.model_dump(mode="json") for file in reading.files],
        "problems": [problem.model_dump(mode="json") for problem in reading.problems],
    }

    def human(console: Console) -> None:
        rows = [(f.file, f.reader, f.results, f.ignored) for f in reading.files if f.reader]
        if len(rows) <= 40:
            columns = ("file", "format", "results", "passed over")
            print_table(console, columns, rows, numeric=columns[2:])
        console.print(
            f"{len(reading.results)} results of {len(rows)} files: {imported.added} added, "
            f"{imported.known} there already. They are foreign: nothing is promoted on them."
        )

    unknown = sum(file.reader is None for file in reading.files)
    if unknown:
        note(state, f"note: {unknown} files are of no known format, or could not be read")
    for problem in reading.problems:
        note(state, f"problem: {problem.file}:{problem.position}: {problem.detail}")
    emit(state, document, human)
