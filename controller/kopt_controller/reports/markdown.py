"""The report as Markdown: the same tables, for a repository or a review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..views import Chapter, DecisionView, Headline
from .contents import conditions_table, tables_of
from .edition import Edition
from .tabular import Column, Table, shown
from .wording import interval, moment, percent, value

__all__ = ["markdown"]

MOST_DECISIONS = 20
"""Decisions whose conditions stand in full, the latest first."""
MOST_ROWS = 1000
"""Of a table; CSV has them all."""


def markdown(edition: Edition) -> str:
    """The whole text."""
    parts = [f"# {_text(edition.title)}", ""]
    parts += [f"Written {moment(edition.generated)} by kopt {edition.version}.", ""]
    for chapter in edition.chapters:
        parts += _chapter(chapter)
    if edition.foreign:
        parts += ["## Imported results", ""]
        parts += [
            "Measured by others and imported as written: none of it is evidence here.",
            "",
        ]
        for table in edition.foreign:
            parts += _table(table)
    if not edition.chapters and not edition.foreign:
        parts += ["There is nothing to report yet.", ""]
    return "\n".join(parts)


def _chapter(chapter: Chapter) -> Iterator[str]:
    subject, tables = chapter.subject, tables_of(chapter)
    yield from (f"## {_text(subject.alias)} on {_text(chapter.hardware.name)}", "")
    if subject.description:
        yield from (_text(subject.description), "")
    yield from _headline(chapter.headline)
    for problem in chapter.problems:
        yield f"- Missing: {_text(problem)}"
    if chapter.problems:
        yield ""
    for name in ("efficiency", "workloads"):
        yield from _table(tables[name])
    if chapter.rounds:
        for name in ("rounds", "candidates", "directions", "regimes", "steers"):
            yield from _table(tables[name])
    yield from _decisions(chapter.decisions)
    for name in ("asked", "environment", "costs"):
        yield from _table(tables[name])
    yield from ("### How to reproduce it", "")
    for command in chapter.reproduce:
        yield from (f"{_text(command.why)}:", "", "```sh", command.line, "```", "")


def _headline(headline: Headline | None) -> Iterator[str]:
    if headline is None:
        yield from ("Nothing was compared over all workloads yet: there is no headline.", "")
        return
    ratio = interval(headline.ratio, headline.ci)
    level = "" if headline.ci is None else f" ({percent(headline.confidence)} interval)"
    times = "" if not headline.ratio else f"**{value(1 / headline.ratio)}\u00d7 as fast.** "
    became = f", {headline.became}" if headline.became else ""
    yield (
        f"{times}{_text(headline.candidate.name)} takes {ratio}{level} of the time of "
        f"{_text(headline.incumbent.name)} over {headline.workloads} workloads: mean "
        f"{value(headline.candidate_mean_us, 4)} us against "
        f"{value(headline.incumbent_mean_us, 4)} us. Decision: {headline.decision}{became}. "
        f"Measured {moment(headline.date)}, epoch `{headline.epoch}`, {_text(headline.source)}."
    )
    yield ""
    if headline.provisional:
        yield from ("Provisional: the way of measuring was not final then.", "")
    if headline.limits:
        yield from (f"What limits it now: {_text(headline.limits)}.", "")


def _decisions(decisions: Sequence[DecisionView]) -> Iterator[str]:
    yield from ("### Decisions and their evidence", "")
    for decision in decisions[: -MOST_DECISIONS - 1 : -1]:
        yield f"**{decision.label}** ({moment(decision.time)}, {_text(decision.source)}): "
        yield f"{_text(decision.reason)}"
        flags = ", ".join(decision.flags) or "none"
        yield f"Flags: {_text(flags)}. {_text(decision.detail)}"
        yield ""
        if decision.conditions:
            yield from _rows(conditions_table(decision))
    if not decisions:
        yield from ("Nothing was decided yet.", "")


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {_text(table.title)}", "")
    if not table.rows:
        yield from (table.empty, "")
        return
    if table.caption:
        yield from (_text(table.caption), "")
    yield from _rows(table)


def _rows(table: Table) -> Iterator[str]:
    head = [_cell(f"{c.name} ({c.unit})" if c.unit else c.name) for c in table.columns]
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---:' if c.is_numeric else '---' for c in table.columns)}|"
    for row in table.rows[:MOST_ROWS]:
        cells = (_written(c, cell) for c, cell in zip(table.columns, row, strict=True))
        yield f"| {' | '.join(cells)} |"
    yield ""
    if len(table.rows) > MOST_ROWS:
        yield from (f"{len(table.rows) - MOST_ROWS} more rows are in the CSV file.", "")


def _written(column: Column, cell: object) -> str:
    text = shown(column, cell)
    is_code = column.form == "code" and text != "-" and "`" not in text
    return f"`{_line(text)}`" if is_code else _cell(text)


def _cell(text: str) -> str:
    return _line(_text(text))


def _line(text: str) -> str:
    """A table row is one line, and a bar would end its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _text(text: str) -> str:
    """What a reader of Markdown shows as it is written."""
    return re.sub(r"([\\`*_<>\[\]#&])", r"\\\1", text)
