"""FlashInfer-Trace: one JSON object a line, as flashinfer-bench writes its traces.

A line without a solution is a workload, and is passed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ...errors import InvalidInputError
from ...files import parse_json
from .._fields import EntryError, number, plain, rest, table, text
from ..record import ForeignResult, Problem, outcome_of
from .protocol import FileRead, ResultFile

__all__ = ["READER"]


class _TraceLines:
    name = "flashinfer-trace"
    suffixes = (".jsonl", ".json")

    def recognises(self, file: ResultFile) -> bool:
        """JSON lines of which one at least is a trace; a JSON file where it is one."""
        return any(_is_trace(_value(content)) for _, content in _lines(file))

    def read(self, file: ResultFile) -> FileRead:
        """A result of each line that has a solution."""
        results: list[ForeignResult] = []
        problems: list[Problem] = []
        ignored = 0
        for line, content in _lines(file):
            try:
                found = _result(file, line, parse_json(content, "the line", "trace"))
            except (EntryError, InvalidInputError) as error:
                problems.append(file.problem(line, error))
                continue
            if found is None:
                ignored += 1
            else:
                results.append(found)
        return FileRead(tuple(results), tuple(problems), ignored)


def _value(content: str) -> Any:
    try:
        return parse_json(content, "the line", "trace")
    except InvalidInputError:
        return None


def _is_trace(value: Any) -> bool:
    return isinstance(value, dict) and {"definition", "workload"} <= value.keys()


def _lines(file: ResultFile) -> Iterator[tuple[int, str]]:
    if file.path.suffix == ".json":
        yield 1, file.text
        return
    # Not splitlines: JSON may have other line separators inside its strings.
    for line, content in enumerate(file.text.split("\n"), start=1):
        if content.strip():
            yield line, content


def _result(file: ResultFile, line: int, value: Any) -> ForeignResult | None:
    if not _is_trace(value):
        raise EntryError("is no trace: it needs definition and workload")
    evaluation = table(value, "evaluation")
    name, source = _solution(value.get("solution"))
    if not name and not evaluation:
        return None
    if not evaluation:
        raise EntryError("has a solution and no evaluation")
    workload, measured = table(value, "workload"), table(evaluation, "performance")
    status = text(evaluation, "status")
    return ForeignResult(
        reader=READER.name,
        kind="workload",
        solution=name,
        source_sha256=source,
        definition=text(value, "definition"),
        workload=text(workload, "uuid") or None,
        axes=_axes(table(workload, "axes")),
        status=status,
        outcome=outcome_of(status),
        message=text(evaluation, "log"),
        latency_ms=number(measured, "latency_ms"),
        reference_latency_ms=number(measured, "reference_latency_ms"),
        speedup=number(measured, "speedup_factor"),
        environment=plain(table(evaluation, "environment")),
        timestamp=text(evaluation, "timestamp") or None,
        place=file.place(line),
        extra=_extra(value, workload, evaluation, measured),
    )


def _solution(value: Any) -> tuple[str, str | None]:
    """Name, and hash of the sources where the solution itself is there."""
    if value is None or isinstance(value, str):
        return value or "", None
    if not isinstance(value, dict):
        raise EntryError("solution is neither a name nor an object")
    sources = value.get("sources")
    if not isinstance(sources, list) or not sources:
        return text(value, "name"), None
    digest = hashlib.sha256()
    for source in sources:
        if not isinstance(source, dict):
            raise EntryError("a source of the solution is not an object")
        for part in (text(source, "path"), text(source, "content")):
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return text(value, "name"), digest.hexdigest()


def _axes(axes: dict[str, Any]) -> dict[str, int]:
    wrong = [
        key for key, value in axes.items() if isinstance(value, bool) or type(value) is not int
    ]
    if wrong:
        raise EntryError(f"the axis {wrong[0]} is {axes[wrong[0]]!r}, not a whole number")
    return axes


def _extra(
    value: dict[str, Any],
    workload: dict[str, Any],
    evaluation: dict[str, Any],
    measured: dict[str, Any],
) -> dict[str, Any]:
    """What has no field of its own, under the names that it had."""
    parts = {
        "workload": rest(workload, "uuid", "axes"),
        "evaluation": rest(evaluation, "status", "log", "environment", "timestamp", "performance"),
        "performance": rest(measured, "latency_ms", "reference_latency_ms", "speedup_factor"),
    }
    outside = rest(value, "definition", "workload", "solution", "evaluation")
    return outside | {key: part for key, part in parts.items() if part}


READER = _TraceLines()
