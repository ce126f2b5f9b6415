"""``kopt audit``: a critical reading of other people's results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import (
    EVIDENCE,
    AppState,
    emit,
    examples,
    note,
    pick_target,
    print_table,
    state_of,
)

if TYPE_CHECKING:
    from kopt_harness.foreign import Finding, Reading
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt audit their-results",
            "kopt audit run.json --target b200 --json",
            "kopt audit traces --exit-code",
            "kopt audit",
        ),
    )(audit)


def audit(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|DIR...", help="Default: what was imported."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="T", help="Hardware of results that do not say theirs."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 where a finding is of severity wrong.")
    ] = False,
) -> None:
    """Say what is wrong or doubtful in result files and search traces."""
    from kopt_harness.foreign import Knowledge, Severity
    from kopt_harness.foreign import audit as run_audit

    state = state_of(ctx)
    knowledge = Knowledge(state.catalog, None if target is None else pick_target(target))
    reading = _reading(state, paths or [])
    findings = run_audit(reading.results, knowledge)
    document: dict[str, Any] = {
        "files": [file.model_dump(mode="json") for file in reading.files],
        "results": len(reading.results),
        "findings": [finding.model_dump(mode="json") for finding in findings],
        "problems": [problem.model_dump(mode="json") for problem in reading.problems],
    }
    emit(state, document, lambda console: _print(console, reading, findings))
    for problem in reading.problems:
        note(state, f"problem: {problem.file}:{problem.position}: {problem.detail}")
    if exit_code and any(finding.severity is Severity.WRONG for finding in findings):
        raise typer.Exit(1)


def _reading(state: AppState, paths: list[Path]) -> Reading:
    """What the files hold; without any, what was imported."""
    from kopt_harness.errors import NotFoundError
    from kopt_harness.foreign import FileSummary, Reading, imported_results, read_results

    if paths:
        return read_results(paths)
    results = imported_results(state.root.local)
    if not results:
        raise NotFoundError(
            "nothing was imported here", hint="name files, or import them: kopt import FILE"
        )
    readers = {result.place.file: result.reader for result in results}
    files = tuple(
        FileSummary(file=file, reader=reader, results=sum(r.place.file == file for r in results))
        for file, reader in readers.items()
    )
    return Reading(files, results, ())


def _print(console: Console, reading: Reading, findings: tuple[Finding, ...]) -> None:
    read = [file for file in reading.files if file.reader]
    console.print(f"{len(reading.results)} results of {len(read)} files")
    rows = [(f.severity.value, f.code.value, f.detail, _evidence(f)) for f in findings]
    if rows:
        print_table(console, ("severity", "code", "finding", "evidence"), rows)
    else:
        console.print("No findings. That is no proof: see docs/audit.md for what is looked at.")


def _evidence(finding: Finding) -> str:
    """The first place, and how many more there are; ``--json`` has all."""
    first, more = finding.evidence[0], len(finding.evidence) - 1
    return f"{first} (+{more})" if more else first
