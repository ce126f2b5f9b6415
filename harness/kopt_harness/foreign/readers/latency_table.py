"""A table of latencies: a workload a line, a solution a column of microseconds.

Columns are told by their names: ``uuid``, ``op`` or ``definition``, ``axes`` as ``A=1;B=2``;
a name with the unit ``us`` in it is a column of times, the one with ``ref`` that of the
reference.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from .._fields import EntryError, number
from ..record import ForeignResult, Problem
from .protocol import FileRead, ResultFile

__all__ = ["READER"]

_UNIT = re.compile(r"(?:^|_)us(?:$|\W)")
_DEFINITIONS = ("definition", "op")


class _LatencyTable:
    name = "latency-table"
    suffixes = (".csv",)

    def recognises(self, file: ResultFile) -> bool:
        """A heading with ``uuid`` and at least one column of times."""
        head = _split(file.text.partition("\n")[0])
        return "uuid" in head and any(map(_UNIT.search, head))

    def read(self, file: ResultFile) -> FileRead:
        """A result of each solution on each line; an empty cell is none."""
        results: list[ForeignResult] = []
        problems: list[Problem] = []
        lines = csv.reader(io.StringIO(file.text, newline=""), strict=True)
        try:
            head = next(lines)
            for cells in lines:
                if not cells:
                    continue
                try:
                    results += _row(file, lines.line_num, head, cells)
                except EntryError as error:
                    problems.append(file.problem(lines.line_num, error))
        except csv.Error as error:
            problems.append(file.problem(lines.line_num, f"is no CSV: {error}"))
        return FileRead(tuple(results), tuple(problems))


def _split(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _row(
    file: ResultFile, line: int, head: Sequence[str], cells: Sequence[str]
) -> list[ForeignResult]:
    if len(cells) != len(head):
        raise EntryError(f"has {len(cells)} cells under {len(head)} headings")
    row = dict(zip(head, cells, strict=True))
    if not row["uuid"]:
        raise EntryError("uuid is empty")
    times = [name for name in head if _UNIT.search(name)]
    reference = next((name for name in times if "ref" in re.split(r"[\W_]", name)), None)
    known = {"uuid", "axes", *_DEFINITIONS, *times}
    reference_ms = None if reference is None else _milliseconds(row, reference)
    found = []
    for name in times:
        latency_ms = _milliseconds(row, name)
        if name == reference or latency_ms is None:
            continue
        result = ForeignResult(
            reader=READER.name,
            kind="workload",
            solution=name,
            definition=next((row[key] for key in _DEFINITIONS if row.get(key)), ""),
            workload=row["uuid"],
            axes=_axes(row.get("axes", "")),
            latency_ms=latency_ms,
            reference_latency_ms=reference_ms,
            place=file.place(line),
            extra={key: value for key, value in row.items() if key not in known},
        )
        found.append(result)
    return found


def _milliseconds(row: Mapping[str, str], name: str) -> float | None:
    cell = row[name].strip()
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        raise EntryError(f"{name} is {cell[:40]!r}, not a number") from None
    checked = number({name: value}, name)
    return None if checked is None else checked / 1e3


def _axes(cell: str) -> dict[str, int]:
    pairs = [part.partition("=") for part in cell.split(";") if part.strip()]
    if not all(value.strip().isdecimal() and len(value) < 16 for _, _, value in pairs):
        raise EntryError(f"axes is {cell[:40]!r}, not NAME=NUMBER;...")
    return {name.strip(): int(value) for name, _, value in pairs}


READER = _LatencyTable()
