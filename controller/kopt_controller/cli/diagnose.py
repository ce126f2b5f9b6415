"""``kopt diagnose``: what limits a kernel, read from a profile that somebody else took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, AppState, emit, examples, note, print_table, report_error, state_of

if TYPE_CHECKING:
    from kopt_harness.diagnose import Diagnosis
    from kopt_harness.errors import KoptError
    from rich.console import Console

_MAX_NAME = 48
_MAX_KERNELS = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt diagnose report.txt",
            "kopt diagnose report.ncu-rep trace.json.gz --json",
        ),
    )(diagnose)


def diagnose(
    ctx: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="ncu text, CSV, .ncu-rep; torch table or trace."),
    ],
) -> None:
    """Say what limits the kernels in profiles, and which numbers say so."""
    from kopt_harness.diagnose import diagnose as run_diagnose
    from kopt_harness.errors import KoptError

    state = state_of(ctx)
    if len(paths) == 1:
        found = run_diagnose(paths[0])
        emit(state, found.document(), lambda console: _print(console, state, found))
        return
    diagnoses: list[Diagnosis] = []
    errors: list[tuple[Path, KoptError]] = []
    for path in paths:
        try:
            diagnoses.append(run_diagnose(path))
        except KoptError as error:
            errors.append((path, error))
    document = {
        "reports": [found.document() for found in diagnoses],
        "errors": [
            {"source": str(path), "error": error.message, "hint": error.hint}
            for path, error in errors
        ],
    }

    def show(console: Console) -> None:
        for found in diagnoses:
            _print(console, state, found)
            console.print()

    emit(state, document, show)
    _end(state, [error for _, error in errors])


def _end(state: AppState, errors: list[KoptError]) -> None:
    """The code of the worst error; with ``--json`` the document has said what they are."""
    if errors and not state.json:
        for error in errors:
            report_error(error, as_json=False)
    if errors:
        raise typer.Exit(max(error.exit_code for error in errors))


def _print(console: Console, state: AppState, found: Diagnosis) -> None:
    console.print(f"{found.source} ({found.format})")
    rows = []
    for regime in found.regimes[:_MAX_KERNELS]:
        figures = regime.shape.figures
        rows.append(
            (
                _short(regime.kernel),
                regime.shape.launches,
                _percent(regime.share),
                _figure(figures.get("duration_us")),
                _figure(figures.get("compute_pct")),
                _figure(figures.get("memory_pct")),
                _figure(figures.get("waves_per_sm")),
                regime.signature.bottleneck,
            )
        )
    columns = ("kernel", "launches", "share", "us", "SM %", "memory %", "waves", "bottleneck")
    print_table(console, columns, rows, numeric=columns[1:-1])
    if len(found.regimes) > _MAX_KERNELS:
        console.print(f"and {len(found.regimes) - _MAX_KERNELS} more; --json has all")
    for one in found.ignored:
        console.print(f"ignored     {_short(one.name)}, {one.launches} launches: {one.reason}")
    signature, dominant = found.signature, found.kernels[0]
    console.print(f"dominant    {_short(dominant.name)}, {_percent(dominant.share)} of the time")
    limiter = f": {signature.limiter}" if signature.limiter else ""
    console.print(f"bottleneck  {signature.bottleneck}{limiter}")
    for row in signature.evidence:
        text = f"{row.metric} {_figure(row.value)} against {row.threshold:g}"
        console.print(f"            {text} ({row.source})")
    console.print(f"headroom    {_percent(signature.headroom)}")
    for text in found.notes:
        note(state, f"note: {text}")


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 3]}..."


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
