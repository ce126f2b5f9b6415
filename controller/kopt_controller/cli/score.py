"""``kopt score``: official scores of definitions and tracks, and the ratio of means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import (
    EVIDENCE,
    AppState,
    TargetOption,
    emit,
    examples,
    note,
    print_table,
    state_of,
)

if TYPE_CHECKING:
    from kopt_harness.score_evidence import Sheet
    from kopt_harness.scores import DefinitionScore, TrackScore
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt score --target h200 --baseline torch-vectorized",
            "kopt score results --baseline reference",
            "kopt score result.json --baseline torch-vectorized --json",
        ),
    )(score)


def score(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Default: retained evidence of the incumbents."),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="NAME", help="What a solution is divided into.")
    ] = "reference",
    target: TargetOption = None,
) -> None:
    """Print official scores and, beside them, the ratio of means: two different numbers."""
    from kopt_harness.errors import InvalidInputError, NotFoundError
    from kopt_harness.foreign import Knowledge
    from kopt_harness.score_evidence import choose, measured, read_sheets
    from kopt_harness.scores import definition_score, track_scores

    state = state_of(ctx)
    knowledge = Knowledge(state.catalog)
    read = read_sheets(paths or _retained(state), knowledge)
    sheets = choose(read, baseline, target)
    found: list[tuple[Sheet, DefinitionScore]] = []
    unscored: list[tuple[Sheet, NotFoundError]] = []
    for sheet in sheets:
        definition = state.catalog.resolve_exact(sheet.definition)
        expected = [workload.uuid for workload in state.catalog.workloads(definition)]
        try:
            found.append((sheet, definition_score(expected, measured(sheet, baseline, read))))
        except NotFoundError as error:
            unscored.append((sheet, error))
        except ValueError as error:
            raise InvalidInputError(f"{sheet.file!r}: {error}", hint="measure again") from error
    if not found:
        raise unscored[0][1]
    for _, why in unscored:
        note(state, f"note: not scored: {why.message}; {why.hint}")
    tracks = track_scores({sheet.definition: result.score for sheet, result in found})
    document = {
        "definitions": [_definition(sheet, result, baseline) for sheet, result in found],
        "tracks": [track._asdict() for track in tracks],
        "unscored": [
            {"id": sheet.definition, "file": sheet.file, "reason": why.message, "hint": why.hint}
            for sheet, why in unscored
        ],
    }
    if paths is None:
        _note_other_incumbents(state, sheets)
    emit(state, document, lambda console: _print(console, found, tracks, baseline))


def _retained(state: AppState) -> list[Path]:
    from kopt_harness.errors import NotFoundError

    files = sorted(state.root.retained.glob("*/*/summary.json"))
    if not files:
        raise NotFoundError(
            "there is no retained evidence yet",
            hint="kopt round or kopt promote writes it; or name result files",
        )
    return files


def _note_other_incumbents(state: AppState, sheets: list[Sheet]) -> None:
    for sheet in sheets:
        definition = state.catalog.resolve_exact(sheet.definition)
        incumbent = state.catalog.incumbent(definition, sheet.target)
        if incumbent is not None and incumbent.sha256 != sheet.sha256:
            note(
                state,
                f"note: the evidence of {definition.kopt.alias} is of {sheet.solution!r}, the "
                f"incumbent on {sheet.target} is {incumbent.name!r}",
            )


def _definition(sheet: Sheet, result: DefinitionScore, baseline: str) -> dict[str, Any]:
    return {
        "id": sheet.definition,
        "score": result.score,
        "ratio_of_means": result.ratio_of_means,
        "workloads": result.workloads,
        "baseline": baseline,
        "target": sheet.target,
        "solution": {"name": sheet.solution, "sha256": sheet.sha256},
        "failed": list(result.failed),
        "missing": list(result.missing),
        "foreign": sheet.foreign,
        "file": sheet.file,
    }


def _print(
    console: Console,
    found: list[tuple[Sheet, DefinitionScore]],
    tracks: tuple[TrackScore, ...],
    baseline: str,
) -> None:
    columns = (
        "definition",
        "solution",
        "target",
        "official score",
        "ratio of means",
        "workloads",
        "failed",
        "missing",
    )
    rows = [
        (
            sheet.definition,
            f"{sheet.solution} (foreign)" if sheet.foreign else sheet.solution,
            sheet.target,
            f"{result.score:.4g}",
            None if result.ratio_of_means is None else f"{result.ratio_of_means:.4g}",
            result.workloads,
            len(result.failed),
            len(result.missing),
        )
        for sheet, result in found
    ]
    console.print(f"Against {baseline}, above 1 is faster:")
    print_table(console, columns, rows, numeric=columns[3:])
    console.print("")
    shown = [(t.name, f"{t.score:.4g}", t.expected, ", ".join(t.absent) or None) for t in tracks]
    heading = ("track", "official score", "definitions expected", "absent, counted as 0")
    print_table(console, heading, shown, numeric=heading[1:3])
    console.print(
        "Official score: mean over the workloads of baseline / solution, 0 if one fails or is "
        "missing.\nRatio of means: mean baseline latency / mean solution latency."
    )
