"""Text that ``ncu`` prints: ``--page details`` with any sections, kernels one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ..record import Advice, Launch, Metric, Recorded
from ..units import parse_number
from .protocol import ProfileFile

__all__ = ["READER", "parse_dim3"]

_DIMS = r"\(\d+, ?\d+, ?\d+\)"
_HEADER = re.compile(
    rf"^ {{0,4}}(?P<name>\S.*?)(?: (?P<grid>{_DIMS}) ?x ?(?P<block>{_DIMS}))?"
    r"(?:, \d{4}-\w{3}-\d{2} \d{2}:\d{2}:\d{2})?(?P<place>, Context \d+, Stream \d+)?"
    r"(?P<device>, Device \d+, CC \d+\.\d+)?(?:, Invocations (?P<count>\d+))?\s*$"
)
"""Older versions print a date and neither grid nor device."""
_SECTION = re.compile(r"^\s+Section: (?P<name>.+?)\s*$")
_DASHES = re.compile(r"^\s*-{3,}(?: +-{3,})*\s*$")
_ADVICE = re.compile(r"^\s+(?:OPT|INF|WRN|ERR)\s+(?P<text>\S.*)$")
_LOOSE_ROW = re.compile(r"^\s+(?P<name>\S.*?)(?:\s{2,}(?P<unit>\S+))?\s{2,}(?P<value>\S+)\s*$")
_DIM = re.compile(r"\d{1,10}")
_VALUE_HEADINGS = ("Metric Value", "Average")
_MAX_LINE = 2000
"""Longer ones below a heading are no line of a report, and slow to look at."""
_COLUMNS = 3
"""Of a table of metrics: name, unit, value; in older versions without headings."""


def parse_dim3(text: str) -> tuple[int, int, int] | None:
    """Three whole numbers in a text, as ``(1, 8, 64)``; None if there are more or fewer."""
    found = _DIM.findall(text)
    return (int(found[0]), int(found[1]), int(found[2])) if len(found) == 3 else None


@dataclass
class _Kernel:
    """A launch while its lines are read."""

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    count: int
    metrics: list[Metric] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)

    def launch(self) -> Launch:
        """What was read of it."""
        return Launch(
            name=self.name,
            grid=self.grid,
            block=self.block,
            count=self.count,
            metrics=tuple(self.metrics),
            advice=tuple(self.advice),
        )


class _Table:
    """Where the columns of a table stand: its first line of dashes says so."""

    def __init__(self, dashes: str, header: str) -> None:
        starts = [match.start() for match in re.finditer(r"-+", dashes)]
        ends = [match.end() for match in re.finditer(r"-+", dashes)]
        self._spans = list(zip(starts, ends, strict=True))
        titles = [header[start:end].strip() for start, end in self._spans]
        self.has_header = titles[0] == "Metric Name"
        wanted = [i for i, title in enumerate(titles) if title in _VALUE_HEADINGS]
        headless = None if self.has_header or len(titles) != _COLUMNS else _COLUMNS - 1
        self._value = wanted[-1] if wanted else headless

    def metric(self, line: str) -> Metric | None:
        """The metric in a row; None where the row is none, or has no number."""
        if self._value is None:
            return None
        cells = [line[start:end].strip() for start, end in self._spans]
        between = [line[end:start] for (_, end), (start, _) in pairwise(self._spans)]
        if any(gap.strip() for gap in [*between, line[self._spans[-1][1] :]]) or not cells[0]:
            row = _LOOSE_ROW.match(line)
            if row is None:
                return None
            cells = [row["name"], row["unit"] or "", row["value"]]
            value = parse_number(cells[-1])
        else:
            value = parse_number(cells[self._value])
        return None if value is None else Metric(cells[0], cells[1], value)


class _Reader:
    name = "ncu-text"

    def recognises(self, file: ProfileFile) -> bool:
        """It has a kernel's heading with a section below it, or ``ncu``'s own messages."""
        if not file.is_text:
            return False
        has_header = False
        for line in file.lines:
            if line.startswith(("==PROF==", "==ERROR==", "==WARNING==")):
                return not any('"Kernel Name"' in other for other in file.lines)
            if _is_header(line) is not None:
                has_header = True
            elif has_header and _SECTION.match(line):
                return True
        return has_header

    def read(self, file: ProfileFile) -> Recorded:
        """Every kernel with its metrics and the sentences of ``ncu``'s rules."""
        kernels = list(_kernels(file.lines))
        notes = [line.strip() for line in file.lines if line.startswith("==ERROR==")]
        return Recorded(tuple(k.launch() for k in kernels), notes=tuple(notes))


def _is_header(line: str) -> re.Match[str] | None:
    """A name with a grid, a context or a device behind it."""
    if ", Context " not in line and ")x(" not in line and ", CC " not in line:
        return None
    match = _HEADER.match(line)
    return match if match and (match["grid"] or match["place"] or match["device"]) else None


class _Body:
    """The lines below a kernel's heading: sections, tables, sentences of rules."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        self._section = ""
        self._dashes = ""
        self._table: _Table | None = None
        self._rows = 0
        self._in_advice = False

    def add(self, line: str) -> None:
        """The next line."""
        if len(line) > _MAX_LINE:
            return
        if match := _SECTION.match(line):
            self._reset()
            self._section = match["name"]
        elif match := _ADVICE.match(line):
            self._reset()
            self._kernel.advice.append(Advice(self._section, match["text"].strip()))
            self._in_advice = True
        elif _DASHES.match(line):
            self._add_dashes(line)
        elif not line.strip():
            self._in_advice = False
        elif self._in_advice:
            last = self._kernel.advice[-1]
            self._kernel.advice[-1] = last._replace(text=f"{last.text} {line.strip()}")
        elif self._dashes:
            table = _Table(self._dashes, line)
            self._reset()
            self._table = table
            if not table.has_header:
                self._add_row(line)
        elif self._table is not None:
            self._add_row(line)

    def _add_row(self, line: str) -> None:
        self._rows += 1
        if self._table is not None and (metric := self._table.metric(line)):
            self._kernel.metrics.append(metric)

    def _add_dashes(self, line: str) -> None:
        """Above a table's headings, below them, or at its end."""
        if self._table is None:
            self._reset()
            self._dashes = line
        elif self._rows:
            self._reset()

    def _reset(self) -> None:
        self._dashes, self._table, self._rows, self._in_advice = "", None, 0, False


def _kernels(lines: list[str]) -> Iterator[_Kernel]:
    kernel: _Kernel | None = None
    body: _Body | None = None
    for line in lines:
        if match := _is_header(line):
            if kernel is not None:
                yield kernel
            kernel = _Kernel(
                match["name"],
                parse_dim3(match["grid"] or ""),
                parse_dim3(match["block"] or ""),
                max(1, int((match["count"] or "1")[:9])),
            )
            body = _Body(kernel)
        elif body is not None:
            body.add(line)
    if kernel is not None:
        yield kernel


READER = _Reader()
