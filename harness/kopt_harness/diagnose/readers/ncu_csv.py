"""CSV that ``ncu --csv`` prints: a metric a row, or (``--page raw``) a launch a row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...errors import InvalidInputError
from ..record import Advice, Launch, Metric, Recorded
from ..units import parse_number
from .ncu_text import parse_dim3
from .protocol import ProfileFile

__all__ = ["READER", "parse_csv"]

_KERNEL = "Kernel Name"
_NAME, _UNIT = "Metric Name", "Metric Unit"
_VALUES = ("Metric Value", "Metric Average")
_GRID, _BLOCK, _COUNT = "Grid Size", "Block Size", "Invocations"
_LABELS = frozenset(
    {
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Time",
        "Context",
        "Stream",
        "Device",
        "CC",
        "Section Name",
        _KERNEL,
        _GRID,
        _BLOCK,
        _COUNT,
    }
)
"""Columns that say which launch it is and hold no metric."""


@dataclass
class _Rows:
    """The rows of one launch."""

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    count: int = 1
    metrics: list[Metric] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)

    def launch(self) -> Launch:
        """What the rows say together."""
        return Launch(
            name=self.name,
            grid=self.grid,
            block=self.block,
            count=self.count,
            metrics=tuple(dict.fromkeys(self.metrics)),
            advice=tuple(dict.fromkeys(self.advice)),
        )


class _Reader:
    name = "ncu-csv"

    def recognises(self, file: ProfileFile) -> bool:
        """It has a line of headings with the kernel's name among them."""
        return file.is_text and _heading(file.lines) is not None

    def read(self, file: ProfileFile) -> Recorded:
        """Every launch with its metrics."""
        return Recorded(tuple(parse_csv(file.lines, str(file.path))))


def parse_csv(lines: list[str], where: str) -> Iterator[Launch]:
    """The launches in CSV, whatever stands before it.

    Raises:
        InvalidInputError: If a row is no CSV.
    """
    start = _heading(lines)
    if start is None:
        return
    kept = (f"{line}\n" for line in lines[start:] if not line.startswith("=="))
    try:
        rows = [row for row in csv.reader(kept) if row]
    except csv.Error as error:
        raise InvalidInputError(
            f"{where!r} is not CSV: {error}", hint="write it again: ncu --csv --page raw"
        ) from error
    titles = [title.strip() for title in rows[0]]
    found = _long(titles, rows[1:]) if _NAME in titles else _wide(titles, rows[1:])
    for one in found:
        yield one.launch()


def _heading(lines: list[str]) -> int | None:
    for number, line in enumerate(lines):
        if f'"{_KERNEL}"' in line or line.startswith(f"ID,{_KERNEL}"):
            return number
    return None


def _long(titles: list[str], rows: Iterable[list[str]]) -> Iterable[_Rows]:
    """A metric, or a sentence of a rule, a row."""
    launches: dict[tuple[str, ...], _Rows] = {}
    value_title = next((title for title in _VALUES if title in titles), "")
    for row in rows:
        cells = dict(zip(titles, row, strict=False))
        name = cells.get(_KERNEL)
        if not name:
            continue
        key = (name, *(cells.get(label, "") for label in ("ID", "Process ID", _GRID, _BLOCK)))
        one = launches.setdefault(key, _start(name, cells))
        value = parse_number(cells.get(value_title, ""))
        if cells.get(_NAME) and value is not None:
            one.metrics.append(Metric(cells[_NAME], cells.get(_UNIT, ""), value))
        if text := cells.get("Rule Description"):
            section = cells.get("Section Name", "")
            one.advice.append(Advice(section, " ".join(text.split())))
    return launches.values()


def _wide(titles: list[str], rows: list[list[str]]) -> Iterable[_Rows]:
    """A launch a row; the first row without a kernel has the units."""
    units: dict[str, str] = {}
    found = []
    for row in rows:
        cells = dict(zip(titles, row, strict=False))
        name = cells.get(_KERNEL)
        if not name:
            units = units or cells
            continue
        one = _start(name, cells)
        for title, text in cells.items():
            value = None if title in _LABELS else parse_number(text)
            if value is not None:
                one.metrics.append(Metric(title, units.get(title, "").strip(), value))
        found.append(one)
    return found


def _start(name: str, cells: dict[str, str]) -> _Rows:
    count = parse_number(cells.get(_COUNT, "")) or 1
    return _Rows(
        name,
        parse_dim3(cells.get(_GRID, "")),
        parse_dim3(cells.get(_BLOCK, "")),
        max(1, int(min(count, 1e9))),
    )


READER = _Reader()
