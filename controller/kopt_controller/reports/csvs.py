"""The tables of a report as CSV files, with every digit."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..views import Chapter
from .contents import conditions_table, evaluations_table, tables_of
from .edition import Edition
from .tabular import Column, Table, csv_rows

__all__ = ["CsvFile", "csv_files"]


class CsvFile(NamedTuple):
    """One file."""

    name: str
    text: str


def csv_files(edition: Edition) -> Iterator[CsvFile]:
    """A file for each table of each chapter that has rows."""
    for chapter in edition.chapters:
        prefix = f"{_plain(chapter.subject.alias)}-{_plain(chapter.hardware.name)}"
        tables = {**tables_of(chapter), "evaluations": evaluations_table(chapter)}
        tables["conditions"] = _conditions(chapter)
        for table in tables.values():
            if table.rows:
                yield CsvFile(f"{prefix}-{table.id}.csv", _text(table))
    for table in edition.foreign:
        yield CsvFile(f"imported-{table.id}.csv", _text(table))


def _conditions(chapter: Chapter) -> Table:
    """Of all decisions, each with where it was made."""
    rows = [
        (decision.source, decision.label, *row)
        for decision in chapter.decisions
        for row in conditions_table(decision).rows
    ]
    names = ("source", "decision", "met", "condition", "measured", "required")
    return Table("conditions", "Conditions", "", tuple(map(Column, names)), tuple(rows))


def _text(table: Table) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows(csv_rows(table))
    return stream.getvalue()


def _plain(name: str) -> str:
    """Fit for a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name) or "_"
