"""Tables of a report: rows of raw values under headings that say how each is written.

The page, Markdown and CSV are made of the same tables. CSV has every digit; people get as many as
mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from .wording import interval, moment, percent, value

__all__ = ["Column", "Form", "Table", "csv_rows", "shown"]

Form = Literal[
    "text", "state", "code", "count", "us", "ratio", "speedup", "number", "exact", "percent", "time"
]
"""How a value is written.

A ``state`` is a word that is good or poor in itself, ``exact`` a number with as many digits as a
file states. ``ratio`` and ``speedup`` take a value with its interval, which may be null.
"""


class Column(NamedTuple):
    """One heading."""

    name: str
    form: Form = "text"
    key: str = ""
    """Heading in CSV, with the unit; empty: the name with underscores."""
    help: str = ""
    """What it means, where the name does not say it."""

    @property
    def is_numeric(self) -> bool:
        """Whether it stands on the right and sorts by its number."""
        return self.form not in ("text", "state", "code", "time")

    @property
    def unit(self) -> str:
        """Of every cell; empty where there is none."""
        return "us" if self.form == "us" else ""

    @property
    def heading(self) -> str:
        """In CSV."""
        return self.key or self.name.replace(" ", "_").replace("/", "over").lower()


class Table(NamedTuple):
    """Rows under headings."""

    id: str
    title: str
    caption: str
    """One sentence or two on how to read it."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    empty: str = "Nothing yet."
    """Said where there are no rows."""


def shown(column: Column, cell: Any) -> str:
    """A cell for people."""
    if cell is None or cell == "":
        return "-"
    write = _WRITE.get(column.form, str)
    return write(cell)


_WRITE: Mapping[Form, Callable[[Any], str]] = {
    "us": lambda cell: value(cell, 4),
    "ratio": lambda cell: interval(*cell),
    "speedup": lambda cell: interval(*cell),
    "number": value,
    "exact": lambda cell: value(cell, 6),
    "percent": percent,
    "time": moment,
}


def csv_rows(table: Table) -> Iterator[list[str]]:
    """Headings, then rows; an interval is two more columns."""
    head: list[str] = []
    for column in table.columns:
        head.append(column.heading)
        if column.form in ("ratio", "speedup"):
            head += [f"{column.heading}_low", f"{column.heading}_high"]
    yield head
    for row in table.rows:
        yield [
            text
            for column, cell in zip(table.columns, row, strict=True)
            for text in _raw(column, cell)
        ]


def _raw(column: Column, cell: Any) -> Sequence[str]:
    if column.form in ("ratio", "speedup"):
        ratio, ci = cell if cell is not None else (None, None)
        low, high = ci or (None, None)
        return [_plain(ratio), _plain(low), _plain(high)]
    return [_plain(cell)]


def _plain(cell: Any) -> str:
    """Every digit; a text that a spreadsheet would take for a formula is quoted."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int | float):
        return repr(cell)
    text = str(cell)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") and text != "-" else text
