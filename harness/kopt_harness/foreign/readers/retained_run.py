"""One run as JSON: ``results`` by definition and uuid, beside it ``summary`` and ``meta``.

This is what the FlashInfer-Bench starter kit prints and what teams keep: no name of the
solution, no hash, no samples, no hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .._fields import EntryError, number, plain, rest, table, text, whole
from ..record import ForeignResult, Problem, outcome_of
from .protocol import FileRead, ResultFile

__all__ = ["READER"]

_NUMBERS = ("latency_ms", "reference_latency_ms", "speedup_factor")
_TEXTS = ("status", "solution", "error", "log", "timestamp")


class _RetainedRun:
    name = "retained-run"
    suffixes = (".json",)

    def recognises(self, file: ResultFile) -> bool:
        """An object whose ``results`` is one too."""
        value = file.value
        return isinstance(value, dict) and isinstance(value.get("results"), dict)

    def read(self, file: ResultFile) -> FileRead:
        """Entries first, then what the file says about them."""
        results: list[ForeignResult] = []
        problems: list[Problem] = []
        when = _timestamp(file.value)
        for each in _entries(file.value):
            try:
                results.append(_result(file, each, when))
            except EntryError as error:
                problems.append(file.problem(each.position, error))
        summaries = file.value.get("summary")
        for definition, entry in summaries.items() if isinstance(summaries, dict) else ():
            position = f"summary/{definition}"
            try:
                results.append(_summary(file, position, definition, entry, when))
            except EntryError as error:
                problems.append(file.problem(position, error))
        return FileRead(tuple(results), tuple(problems))


class _Entry(NamedTuple):
    position: str
    definition: str
    uuid: str
    value: Any


def _entries(value: dict[str, Any]) -> Iterator[_Entry]:
    for definition, by_uuid in value["results"].items():
        if not isinstance(by_uuid, dict):
            yield _Entry(f"results/{definition}", definition, "", by_uuid)
            continue
        for uuid, entry in by_uuid.items():
            yield _Entry(f"results/{definition}/{uuid}", definition, uuid, entry)


def _result(file: ResultFile, place: _Entry, when: str | None) -> ForeignResult:
    entry = place.value
    if not isinstance(entry, dict):
        raise EntryError("is not an object")
    status = text(entry, "status")
    return ForeignResult(
        reader=READER.name,
        kind="workload",
        solution=text(entry, "solution"),
        definition=place.definition,
        workload=place.uuid,
        status=status,
        outcome=outcome_of(status),
        message=text(entry, "error") or text(entry, "log"),
        latency_ms=number(entry, "latency_ms"),
        reference_latency_ms=number(entry, "reference_latency_ms"),
        speedup=number(entry, "speedup_factor"),
        environment=plain(table(entry, "environment")),
        timestamp=text(entry, "timestamp") or when,
        place=file.place(place.position),
        extra=rest(entry, *_NUMBERS, *_TEXTS, "environment"),
    )


def _summary(
    file: ResultFile, position: str, definition: str, entry: Any, when: str | None
) -> ForeignResult:
    if not isinstance(entry, dict):
        raise EntryError("is not an object")
    used = ("total_workloads", "avg_latency_ms", "avg_reference_latency_ms", "avg_speedup_factor")
    return ForeignResult(
        reader=READER.name,
        kind="summary",
        definition=definition,
        workload_count=whole(entry, used[0]),
        latency_ms=number(entry, used[1]),
        reference_latency_ms=number(entry, used[2]),
        speedup=number(entry, used[3]),
        timestamp=when,
        place=file.place(position),
        extra=rest(entry, *used) | {"meta": plain(file.value.get("meta"))},
    )


def _timestamp(value: dict[str, Any]) -> str | None:
    meta = value.get("meta")
    found = meta.get("finished") if isinstance(meta, dict) else None
    found = found or value.get("generated_at_utc")
    return found if isinstance(found, str) else None


READER = _RetainedRun()
