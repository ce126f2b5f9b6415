"""Tables that ``torch.profiler`` prints: ``key_averages().table()``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..record import Launch, Recorded, Timeline
from ..units import parse_number, parse_quantity
from .protocol import ProfileFile

__all__ = ["READER"]

_DASHES = re.compile(r"^\s*-{3,}(?:\s+-{3,})+\s*$")
_TOTAL = re.compile(r"^Self (?P<what>\w+) time total: (?P<time>\S+)\s*$")
_CALLS = "# of Calls"
_DEVICES = ("CUDA", "XPU", "PrivateUse1")
_CPU = "CPU"


@dataclass(frozen=True)
class _Row:
    name: str
    self_cpu_us: float
    self_device_us: float
    calls: int


class _Reader:
    name = "torch-table"

    def recognises(self, file: ProfileFile) -> bool:
        """It has headings with a name, the CPU's own time and the number of calls."""
        return file.is_text and any(_is_heading(line) for line in file.lines)

    def read(self, file: ProfileFile) -> Recorded:
        """The kernels of the device; where the table has none, the CPU's operators."""
        rows = list(_rows(file.lines))
        kernels = [row for row in rows if row.self_device_us > 0 and row.self_cpu_us == 0]
        chosen = kernels or [row for row in rows if row.self_cpu_us > 0]
        launches = tuple(
            Launch(
                name=row.name,
                duration_us=(row.self_device_us if kernels else row.self_cpu_us) / row.calls,
                count=row.calls,
                on_device=bool(kernels),
            )
            for row in chosen
        )
        totals = _totals(file.lines)
        busy = next((totals[name] for name in _DEVICES if name in totals), None)
        timeline = None
        if kernels and busy is not None and _CPU in totals:
            timeline = Timeline(max(totals[_CPU], busy), busy)
        return Recorded(launches, ordered=False, timeline=timeline, notes=_notes(timeline))


def _notes(timeline: Timeline | None) -> tuple[str, ...]:
    if timeline is None:
        return ()
    return ("a table has no timeline: the CPU's own time stands for the span, a rough measure",)


def _is_heading(line: str) -> bool:
    return "Self CPU" in line and _CALLS in line and "Name" in line


def _totals(lines: list[str]) -> dict[str, float]:
    found = {}
    for line in lines:
        match = _TOTAL.match(line)
        quantity = None if match is None else parse_quantity(match["time"])
        if match is not None and quantity is not None and quantity.unit == "s":
            found[match["what"]] = quantity.value * 1e6
    return found


def _rows(lines: list[str]) -> Iterator[_Row]:
    spans: list[tuple[int, int]] = []
    titles: list[str] = []
    for line in lines:
        if _DASHES.match(line):
            drawn = [match.span() for match in re.finditer(r"-+", line)]
            if drawn != spans:  # another table, whose headings are still to come
                spans, titles = drawn, []
        elif _is_heading(line) and spans:
            titles = _cells(line, spans)
        elif titles and spans and len(line.strip()) > 0:
            row = _row(dict(zip(titles, _cells(line, spans), strict=True)))
            if row is not None:
                yield row


def _cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    return [line[start:end].strip() for start, end in spans]


def _row(cells: dict[str, str]) -> _Row | None:
    calls = parse_number(cells.get(_CALLS, ""))
    name = cells.get("Name", "")
    if not name or calls is None or calls < 1:
        return None
    device = next((f"Self {name}" for name in _DEVICES if f"Self {name}" in cells), "")
    return _Row(
        name, _us(cells.get("Self CPU", "")), _us(cells.get(device, "")), int(min(calls, 1e9))
    )


def _us(text: str) -> float:
    quantity = parse_quantity(text)
    return quantity.value * 1e6 if quantity is not None and quantity.unit == "s" else 0.0


READER = _Reader()
