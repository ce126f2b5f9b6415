"""``kopt report``: what was measured, to look at."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import EVIDENCE, AppState, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console

    from ..reports import Edition
    from ..reports.tabular import Table
    from ..views import Chapter


RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Only this run: id or a part of it.")
]
DefinitionOption = Annotated[
    str | None, typer.Option("--definition", metavar="DEF", help="Only this definition.")
]
OnlyTargetOption = Annotated[
    str | None, typer.Option("--target", metavar="T", help="Only this hardware.")
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="One self-contained page; needs jinja2."),
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="The same as Markdown.")
]
CsvOption = Annotated[
    Path | None,
    typer.Option("--csv", metavar="DIR", help="Every table as CSV, with every digit."),
]
FiguresOption = Annotated[
    Path | None,
    typer.Option("--figures", metavar="DIR", help="Every figure as PDF and SVG; needs matplotlib."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt report --html report.html",
            "kopt report --definition gdn_decode --target h200 --markdown report.md",
            "kopt report --run 20261129-141722 --csv tables --figures figures",
            "kopt report",
        ),
    )(report)


def report(
    ctx: typer.Context,
    run: RunOption = None,
    definition: DefinitionOption = None,
    target: OnlyTargetOption = None,
    html: HtmlOption = None,
    markdown: MarkdownOption = None,
    csv: CsvOption = None,
    figures: FiguresOption = None,
) -> None:
    """Write reports of the archive, of committed evidence and of imported results.

    Without a file to write, the headlines are printed. DIR is made where it is missing, the folders
    above it and that of a FILE are not.
    """
    from ..reports import csv_files, page, write_figures
    from ..reports import markdown as markdown_text

    state = state_of(ctx)
    _require_parents(html, markdown, csv, figures)
    edition = _edition(state, run, definition, target)
    written: list[Path] = []
    if html is not None:
        written.append(_write(html, page(edition)))
    if markdown is not None:
        written.append(_write(markdown, markdown_text(edition)))
    if csv is not None:
        folder = _folder(csv)
        written += [_write(folder / file.name, file.text) for file in csv_files(edition)]
    if figures is not None:
        written += write_figures(edition, _folder(figures))
    document = {
        "chapters": [_chapter(chapter) for chapter in edition.chapters],
        "imported": sum(len(table.rows) for table in edition.foreign if table.id == "runs"),
        "files": [str(path) for path in written],
    }
    for chapter in edition.chapters:
        for problem in chapter.problems:
            note(state, f"note: {problem}")
    emit(state, document, lambda console: _print(console, edition, written))


def _edition(
    state: AppState, run: str | None, definition: str | None, target: str | None
) -> Edition:
    """What the options ask for.

    Raises:
        NotFoundError: If there is nothing of the kind.
    """
    from datetime import UTC, datetime

    import kopt_harness
    from kopt_harness.errors import NotFoundError
    from kopt_harness.foreign import imported_results

    from ..reports import Edition, imported_tables
    from ..views import foreign_runs

    name = None if definition is None else state.catalog.resolve(definition).name
    chapters = _chapters(state, run, name, target)
    foreign: tuple[Table, ...] = ()
    if run is None and target is None:
        results = imported_results(state.root.local)
        foreign = imported_tables(foreign_runs(results, state.catalog, name))
    if not chapters and not foreign:
        raise NotFoundError(
            "there is nothing to report of that",
            hint="kopt history lists what was measured; kopt round and kopt import add to it",
        )
    return Edition(
        title=_title(chapters),
        generated=datetime.now(UTC).isoformat(timespec="seconds"),
        version=kopt_harness.__version__,
        chapters=chapters,
        foreign=foreign,
    )


def _chapters(
    state: AppState, run: str | None, definition: str | None, target: str | None
) -> tuple[Chapter, ...]:
    from kopt_harness.archive import Archive
    from kopt_harness.errors import UsageError

    from ..indexed import open_index
    from ..views import Sources, list_subjects, run_chapter, subject_chapter

    with open_index(state.root.local) as index:
        sources = Sources(state.root, state.catalog, index)
        if run is None:
            keys = list_subjects(state.root, index, definition=definition, target=target)
            return tuple(subject_chapter(sources, key) for key in keys)
        chapter = run_chapter(sources, Archive(state.root.local).run(run))
    found = (chapter.subject.id, chapter.hardware.name)
    if definition not in (None, found[0]) or target not in (None, found[1]):
        raise UsageError(
            f"the run {run!r} is of {found[0]} on {found[1]}",
            hint="leave out --definition and --target",
        )
    return (chapter,)


def _title(chapters: tuple[Chapter, ...]) -> str:
    names = [f"{each.subject.alias} on {each.hardware.name}" for each in chapters]
    return "kopt: " + (", ".join(names[:3]) + (", ..." if len(names) > 3 else "") or "report")


def _require_parents(*paths: Path | None) -> None:
    """A misspelt folder is refused before anything is read, rather than made."""
    from kopt_harness.errors import NotFoundError

    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise NotFoundError(
                f"no folder {str(path.parent)!r} for {str(path)!r}",
                hint=f"make it first: mkdir -p {shlex.quote(str(path.parent))}",
            )


def _folder(path: Path) -> Path:
    from kopt_harness.errors import InvalidInputError

    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"{str(path)!r} cannot be a folder: {error.strerror}", hint="name another place"
        ) from error
    return path


def _write(path: Path, text: str) -> Path:
    from kopt_harness.files import write_output

    write_output(path, text)
    return path


def _chapter(chapter: Chapter) -> dict[str, Any]:
    head = chapter.headline
    return {
        "definition": chapter.subject.id,
        "target": chapter.hardware.name,
        "runs": [asked.run for asked in chapter.runs],
        "rounds": len(chapter.rounds),
        "candidates": len(chapter.candidates),
        "evaluations": chapter.evaluations.in_all,
        "headline": None if head is None else head.model_dump(mode="json"),
        "problems": list(chapter.problems),
    }


def _print(console: Console, edition: Edition, written: list[Path]) -> None:
    from ..reports.wording import interval, value

    rows = [
        (
            f"{chapter.subject.alias} on {chapter.hardware.name}",
            len(chapter.rounds),
            None if head is None else head.candidate.name,
            None if head is None else head.incumbent.name,
            None if head is None else interval(head.ratio, head.ci),
            None if head is None else value(head.candidate_mean_us, 4),
        )
        for chapter in edition.chapters
        for head in (chapter.headline,)
    ]
    if rows:
        columns = ("what", "rounds", "candidate", "incumbent", "time / incumbent", "mean us")
        print_table(console, columns, rows, numeric=("rounds", "mean us"))
    for table in edition.foreign:
        if table.id == "runs":
            console.print(f"{len(table.rows)} imported runs")
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    if not written:
        console.print("--html FILE, --markdown FILE, --csv DIR and --figures DIR write all of it.")
