"""What an external profiler has printed: one row a kernel, and which call each belongs to.

The report comes over a pipe that candidate code can at most add to. Rows are numbered from 0
and every call begins with a marker, so that a row too many or too few leaves nothing to read.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["METRIC", "Launch", "UnreadableError", "attribute", "read_report"]

METRIC = "gpu__time_duration.sum"
"""Time of a kernel on the device, in ncu's words."""
_COLUMNS = ("ID", "Kernel Name", "Stream", "Grid Size", "Metric Name", "Metric Unit")
_VALUE = "Metric Value"
_NS = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
"""Names of units, of older versions as well."""


class UnreadableError(Exception):
    """The report says nothing of the calls; why, in one sentence."""


class Launch(NamedTuple):
    """One kernel."""

    name: str
    grid: str
    stream: str
    ns: float


def read_report(text: str) -> tuple[Launch, ...]:
    """The kernels in the order of their launches.

    Args:
        text: what the program has printed, messages beginning with ``==`` among it.

    Raises:
        UnreadableError: it holds no table, or one that is not whole.
    """
    lines = text.split("\n")
    errors = [line for line in lines if line.startswith("==ERROR==")]
    if errors:
        raise UnreadableError(errors[0].removeprefix("==ERROR==").strip()[:300])
    rows = list(csv.reader(line for line in lines if line and not line.startswith("==")))
    start = next((at for at, row in enumerate(rows) if row[:1] == ["ID"]), None)
    if start is None:
        raise UnreadableError("it has reported no kernel")
    if start:
        raise UnreadableError(f"something else stands before the table: {rows[0][0][:80]!r}")
    header = rows[0]
    lacking = [name for name in (*_COLUMNS, _VALUE) if name not in header]
    if lacking:
        raise UnreadableError(f"the table has no column {lacking[0]!r}")
    return tuple(_launch(header, row, number) for number, row in enumerate(rows[1:]))


def attribute(launches: Sequence[Launch], calls: int) -> list[tuple[Launch, ...]]:
    """The kernels of each call, the marker first.

    Args:
        launches: of the whole report; the first one is a marker.
        calls: how many were made.

    Raises:
        UnreadableError: there are other than so many markers.
    """
    if not launches:
        raise UnreadableError("it has reported no kernel")
    marker = launches[0].name, launches[0].grid
    starts = [at for at, each in enumerate(launches) if (each.name, each.grid) == marker]
    if len(starts) != calls:
        raise UnreadableError(f"{len(starts)} calls are in the report, {calls} were made")
    ends = [*starts[1:], len(launches)]
    return [tuple(launches[a:b]) for a, b in zip(starts, ends, strict=True)]


def _launch(header: Sequence[str], row: Sequence[str], number: int) -> Launch:
    if len(row) != len(header):
        raise UnreadableError(f"row {number} has {len(row)} fields of {len(header)}")
    fields = dict(zip(header, row, strict=True))
    if fields["ID"] != str(number) or fields["Metric Name"] != METRIC:
        what = f"{fields['Metric Name']!r} of kernel {fields['ID']!r}"
        raise UnreadableError(f"{what} stands where {METRIC!r} of kernel {number} was expected")
    unit = fields["Metric Unit"]
    try:
        ns = float(fields[_VALUE].replace(",", "")) * _NS[unit]
    except (ValueError, KeyError):
        raise UnreadableError(f"kernel {number} took {fields[_VALUE]!r} {unit!r}") from None
    if not 0 < ns < 1e15:  # neither NaN
        raise UnreadableError(f"kernel {number} took {ns!r} ns")
    return Launch(fields["Kernel Name"], fields["Grid Size"], fields["Stream"], ns)
