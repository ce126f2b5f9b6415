"""Every workload that a run has checked, as a table that is searched and sorted where it lies.

Ten thousand rows stay in this process; a page gets the few that it shows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

__all__ = ["COLUMNS", "Evaluated", "EvaluationTable", "Page"]


class Evaluated(NamedTuple):
    """One workload of one candidate in one stage of a round."""

    number: int
    """Position in the run, from 1."""
    time: str
    """UTC, ISO 8601."""
    round: int
    stage: str
    """``gate``, ``sweep`` or ``validation``."""
    candidate: str
    sha256: str
    """First digits."""
    uuid: str
    axes: str
    verdict: str
    phase: str
    trials: int | None
    median_us: float | None
    """Null before it is timed."""


COLUMNS = Evaluated._fields
"""By which a table can be sorted."""


class Page(NamedTuple):
    """Some rows of those that were asked for."""

    rows: list[Evaluated]
    found: int
    """Rows that fit the search."""
    total: int
    """Rows of the run."""

    def document(self) -> dict[str, Any]:
        """Rows as lists: names would be most of what is sent."""
        return {
            "columns": COLUMNS,
            "rows": [list(row) for row in self.rows],
            "found": self.found,
            "total": self.total,
        }


class EvaluationTable:
    """Rows in the order in which they were measured."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        """How many rows have which verdict."""
        self._rows: list[Evaluated] = []
        self._places: dict[tuple[int, str, str, str], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Evaluated) -> None:
        """One more; one that is there already is replaced, and keeps its number."""
        key = (row.round, row.stage, row.sha256, row.uuid)
        place = self._places.get(key)
        if place is None:
            self._places[key] = len(self._rows)
            self._rows.append(row._replace(number=len(self._rows) + 1))
        else:
            before = self._rows[place]
            self.verdicts[before.verdict] -= 1
            self._rows[place] = row._replace(number=before.number)
        self.verdicts[row.verdict] += 1

    def timed(self, round_: int, stage: str, sha256: str, uuid: str, median_us: float) -> None:
        """A row's time, which comes after its verdict."""
        place = self._places.get((round_, stage, sha256, uuid))
        if place is not None:
            self._rows[place] = self._rows[place]._replace(median_us=median_us)

    def page(
        self, *, search: str = "", sort: str = "number", descending: bool, offset: int, limit: int
    ) -> Page:
        """The rows that fit, sorted.

        Args:
            search: Words that must all occur in a row, in any case of letters.
            sort: One of ``COLUMNS``.
            descending: Largest first; rows without a value come last either way.
            offset: Rows to leave out.
            limit: Rows at most.
        """
        words = search.casefold().split()
        found = [row for row in self._rows if _fits(row, words)] if words else list(self._rows)
        place = COLUMNS.index(sort)
        keyed: list[tuple[Any, Evaluated]] = [(row[place], row) for row in found]
        have = [each for each in keyed if each[0] is not None]
        have.sort(key=lambda each: each[0], reverse=descending)
        without = [row for value, row in keyed if value is None]
        rows = [*(row for _, row in have), *without][offset : offset + limit]
        return Page(rows, len(found), len(self._rows))


def _fits(row: Evaluated, words: list[str]) -> bool:
    text = (
        f"r{row.round} {row.stage} {row.candidate} {row.sha256} {row.uuid} {row.axes} "
        f"{row.verdict} {row.phase}"
    ).casefold()
    return all(word in text for word in words)
