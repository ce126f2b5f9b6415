"""Paired blocks out of records: those of a journal, and those of retained evidence."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .errors import InvalidInputError
from .schema import PairedBlock

__all__ = [
    "MIN_BLOCKS",
    "SAMPLES_FILE",
    "incumbent_median_us",
    "paired_blocks",
    "pooled_by_shape",
    "retained_blocks",
]

SAMPLES_FILE = "samples.json.gz"
"""In a folder of retained evidence."""
MIN_BLOCKS = 2
"""From which on there is an interval."""

_BLOCK = re.compile(r"(?:r(\d+)/)?sweep/[^/]+/[^/]+/(?:[^/]+/)*block/([^/]+)/([^/]+)/\d+")


def retained_blocks(folder: Path) -> dict[str, list[PairedBlock]]:
    """Blocks of committed evidence, by workload; empty where there are none.

    Args:
        folder: As ``artifacts/retained/<definition>/<target>``.

    Raises:
        InvalidInputError: If the file cannot be read.
    """
    path = folder / SAMPLES_FILE
    if not path.exists():
        return {}
    try:
        units = json.loads(gzip.decompress(path.read_bytes()))
        return paired_blocks(units.items())
    except (
        OSError,
        EOFError,
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise InvalidInputError(
            f"cannot read the samples {str(path)!r}: {error}", hint="restore the file with git"
        ) from error


def paired_blocks(
    units: Iterable[tuple[str, Mapping[str, Any]]], number: int | None = None
) -> dict[str, list[PairedBlock]]:
    """Blocks of the first pair of a sweep, by workload; baselines are pairs of their own.

    Args:
        units: Recorded units by journal key.
        number: Only of this round; None: of any.
    """
    found: dict[str, list[PairedBlock]] = {}
    first = None
    for key, value in units:
        match = _BLOCK.fullmatch(key)
        if match is None or "a_ns" not in value or number not in (None, int(match[1] or 0)):
            continue
        first = first or match[2]
        if match[2] == first:
            order = value.get("order", "abba")
            block = PairedBlock(a_ns=value["a_ns"], b_ns=value["b_ns"], order=order)
            found.setdefault(match[3], []).append(block)
    return found


def pooled_by_shape(
    rows: Sequence[Mapping[str, Any]], blocks: Mapping[str, Sequence[PairedBlock]]
) -> dict[str, Sequence[PairedBlock]]:
    """Blocks of each workload; of its shape, where one of the shape has too few of its own.

    On a GPU a round times one workload of each shape in turn.

    Args:
        rows: Workloads with ``uuid`` and ``axes``.
        blocks: By workload.
    """
    shapes: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for row in rows:
        shapes.setdefault(tuple(sorted(row["axes"].items())), []).append(row["uuid"])
    found: dict[str, Sequence[PairedBlock]] = {}
    for uuids in shapes.values():
        own = {uuid: blocks.get(uuid, ()) for uuid in uuids}
        together = [block for each in own.values() for block in each]
        is_short = min(map(len, own.values())) < MIN_BLOCKS
        found |= {uuid: together if is_short else own[uuid] for uuid in uuids}
    return found


def incumbent_median_us(blocks: Sequence[PairedBlock]) -> float | None:
    """Median time of the one that was to be beaten, A; None of too few blocks."""
    if len(blocks) < MIN_BLOCKS:
        return None
    return median(ns for block in blocks for ns in block.a_ns) / 1e3
