"""An evolutionary search: one JSON an evaluation, and checkpoints with the best so far.

An evaluation has ``status``, ``score``, ``metrics`` with mean times over all workloads, and
the hash of what was evaluated. A checkpoint's ``best_solution.json`` holds the evaluation that
the search would keep, as a text that may have been cut; ``metadata.json`` beside it has none.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from .._fields import EntryError, number, plain, rest, table, text, whole
from ..record import ForeignResult, outcome_of
from .protocol import FileRead, ResultFile

__all__ = ["READER"]

_HASH = re.compile(r"sha256:([0-9a-f]{64})")


class _SearchTrace:
    name = "search-trace"
    suffixes = (".json",)

    def recognises(self, file: ResultFile) -> bool:
        """One of the three kinds of file."""
        value = file.value
        return isinstance(value, dict) and (
            {"status", "metrics"} <= value.keys()
            or {"solution_id", "evaluation"} <= value.keys()
            or {"best_solution_id", "islands"} <= value.keys()
        )

    def read(self, file: ResultFile) -> FileRead:
        """One result, or none of a checkpoint's metadata."""
        value = file.value
        if "best_solution_id" in value:
            return FileRead((), ignored=1)
        read = _evaluation if "metrics" in value else _checkpoint
        try:
            return FileRead((read(file, value),))
        except EntryError as error:
            return FileRead((), (file.problem(0, error),))


def _evaluation(file: ResultFile, value: dict[str, Any]) -> ForeignResult:
    artifacts = table(value, "artifacts")
    status = text(value, "status")
    error = text(artifacts, "error") or text(value, "summary")
    return ForeignResult(
        reader=READER.name,
        kind="mean",
        source_sha256=text(value, "code_sha256") or None,
        definition=text(artifacts, "task_id"),
        status=status,
        outcome=outcome_of(status),
        message="" if outcome_of(status) == "passed" else error,
        score=number(value, "score"),
        environment=plain(table(value, "environment")),
        timestamp=text(value, "timestamp") or None,
        place=file.place(0),
        extra=rest(value, "status", "score", "code_sha256", "timestamp", "environment"),
        **_times(table(value, "metrics"), table(artifacts, "bench_stats")),
    )


def _times(metrics: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """Times and speed-up; a zero there means that nothing was measured."""
    return {
        "latency_ms": number(metrics, "exec_time_ms") or None,
        "reference_latency_ms": number(metrics, "baseline_time_ms") or None,
        "speedup": number(metrics, "speedup") or None,
        "workload_count": whole(stats, "total_workloads"),
    }


def _checkpoint(file: ResultFile, value: dict[str, Any]) -> ForeignResult:
    written = text(value, "evaluation")
    inner = {key: _part(written, key) for key in ("metrics", "bench_stats")}
    status = re.search(r'"status":\s*"([^"]*)"', written)
    task = re.search(r'"task_id":\s*"([^"]*)"', written)
    seconds = number(value, "timestamp")
    source = _HASH.fullmatch(text(value, "solution"))
    return ForeignResult(
        reader=READER.name,
        kind="selected",
        solution=text(value, "solution_id"),
        source_sha256=None if source is None else source.group(1),
        definition="" if task is None else task.group(1),
        status="" if status is None else status.group(1),
        outcome=outcome_of("" if status is None else status.group(1)),
        score=number(value, "score"),
        timestamp=None if seconds is None else _time(seconds),
        place=file.place(0),
        extra=rest(value, "solution_id", "score", "timestamp"),
        **_times(inner["metrics"], inner["bench_stats"]),
    )


def _part(written: str, key: str) -> dict[str, Any]:
    """One object out of a JSON text that may end anywhere."""
    start = re.search(rf'"{key}":\s*(?={{)', written)
    if start is None:
        return {}
    try:
        found, _ = json.JSONDecoder().raw_decode(written, start.end())
    except (ValueError, RecursionError):
        return {}
    return table({key: found}, key)


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        raise EntryError(f"timestamp is {seconds}, not a time") from None


READER = _SearchTrace()
