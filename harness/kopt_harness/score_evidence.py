"""Evidence of latencies for a score: documents that kopt wrote, and foreign result files.

Read are ``summary.json`` of a promotion and the JSON documents of ``check``, ``bench`` and
``sweep`` (also ``result.json`` beside a sweep's journal). A baseline comes from the document
itself, from the blocks that a promotion keeps of the solution that was replaced, or from a
``bench`` or ``sweep`` of the baseline beside it that is of the same definition, target and
epoch: latencies of two epochs are not divided by each other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .block_records import SAMPLES_FILE, incumbent_median_us, pooled_by_shape, retained_blocks
from .errors import InvalidInputError, KoptError, NotFoundError, UsageError
from .files import read_json
from .foreign import Knowledge, read_results
from .foreign.runs import Run, make_runs
from .scores import Measured

__all__ = ["REFERENCE", "Sheet", "choose", "measured", "read_sheets"]

REFERENCE = "reference"
"""The PyTorch reference: the baseline of the official score."""

_NOTHING_LEARNT = frozenset({"infra", "invalid"})


@dataclass(frozen=True)
class Sheet:
    """What one document says of one solution."""

    file: str
    definition: str
    target: str
    solution: str
    sha256: str | None
    epoch: str | None
    passed: Mapping[str, bool]
    """By uuid; workloads of which nothing was learnt are left out."""
    times_us: Mapping[str, float | None]
    baselines: Mapping[str, Mapping[str, tuple[float | None, float | None]]]
    """By name of the baseline and uuid: baseline and solution, measured side by side."""
    axes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By uuid, where they are needed to read the blocks beside the document."""
    replaced: str | None = None
    """The solution that was the incumbent before, where its blocks lie beside the document."""
    foreign: bool = False


def read_sheets(paths: Iterable[Path], knowledge: Knowledge) -> list[Sheet]:
    """All sheets of files, and of the JSON files below folders.

    Raises:
        NotFoundError: If a path does not exist.
        InvalidInputError: If a path has none, or a named file cannot be read.
    """
    sheets: list[Sheet] = []
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"no file or folder {str(path)!r}", hint="check the path")
        found = [sheet for file in _files(path) for sheet in _own(file, named=file == path)]
        if not found:
            found = list(_foreign(path, knowledge))
        sheets += found
    return sheets


def choose(sheets: Sequence[Sheet], baseline: str, target: str | None) -> list[Sheet]:
    """One sheet of each definition, in the order of the names.

    Args:
        sheets: All there are.
        baseline: Whose own sheets are not scored where there are others.
        target: Only of this hardware; None where there is only one.

    Raises:
        UsageError: If sheets are of several targets, or two are of one definition.
        NotFoundError: If there is none of the target.
    """
    targets = sorted({sheet.target for sheet in sheets})
    if target is None and len(targets) > 1:
        raise UsageError(
            f"the evidence is of several targets: {', '.join(targets)}", hint="add --target T"
        )
    wanted = [sheet for sheet in sheets if target in (None, sheet.target)]
    if not wanted:
        raise NotFoundError(
            f"no evidence of {target!r}", hint=f"there is evidence of {', '.join(targets)}"
        )
    chosen: dict[str, Sheet] = {}
    for sheet in [s for s in wanted if s.solution != baseline] or wanted:
        other = chosen.setdefault(sheet.definition, sheet)
        if other is not sheet:
            raise UsageError(
                f"two results of {sheet.definition}: {other.solution!r} in {other.file!r} and "
                f"{sheet.solution!r} in {sheet.file!r}",
                hint="name the one file that counts",
            )
    return [chosen[name] for name in sorted(chosen)]


def measured(sheet: Sheet, baseline: str, sheets: Sequence[Sheet] = ()) -> dict[str, Measured]:
    """Times of a solution and of a baseline by uuid.

    Args:
        sheet: Of the solution.
        baseline: Name of a solution.
        sheets: Where the baseline is looked for if the sheet has none of this name.

    Raises:
        NotFoundError: If the evidence has no such baseline.
        InvalidInputError: If the baseline lacks workloads that the solution passed.
    """
    beside = [other for other in sheets if _beside(sheet, other)]
    pairs = _pairs(sheet, baseline, beside)
    if pairs is None:
        replaced = () if sheet.replaced is None else (sheet.replaced,)
        names = sorted({*sheet.baselines, *replaced, *(other.solution for other in beside)})
        known = f"it has {', '.join(names)}; " if names else ""
        raise NotFoundError(
            f"the evidence of {sheet.definition} in {sheet.file!r} has no baseline {baseline!r}",
            hint=f"{known}{_how_to_measure(sheet, baseline)}",
        )
    found = {
        uuid: Measured(passed, solution_us=pairs[uuid][1], baseline_us=pairs[uuid][0])
        if uuid in pairs
        else Measured(passed, sheet.times_us.get(uuid), None)
        for uuid, passed in sheet.passed.items()
    }
    lacking = [u for u, m in found.items() if m.passed and m.solution_us and not m.baseline_us]
    if lacking:
        raise InvalidInputError(
            f"the baseline {baseline!r} of {sheet.definition} in {sheet.file!r} lacks "
            f"{len(lacking)} of {len(found)} workloads, as {lacking[0]!r}",
            hint="measure the baseline on all workloads",
        )
    return found


def _pairs(
    sheet: Sheet, baseline: str, beside: Sequence[Sheet]
) -> Mapping[str, tuple[float | None, float | None]] | None:
    if baseline in sheet.baselines:
        return sheet.baselines[baseline]
    if sheet.solution == baseline:
        return {uuid: (time, time) for uuid, time in sheet.times_us.items()}
    if sheet.replaced == baseline:
        return _replaced(sheet)
    other = next((other for other in beside if other.solution == baseline), None)
    if other is None:
        return None
    return {uuid: (other.times_us.get(uuid), time) for uuid, time in sheet.times_us.items()}


def _replaced(sheet: Sheet) -> dict[str, tuple[float | None, float | None]]:
    """The solution that was to be beaten, out of the paired blocks that decided it."""
    rows = [{"uuid": uuid, "axes": axes} for uuid, axes in sheet.axes.items()]
    blocks = pooled_by_shape(rows, retained_blocks(Path(sheet.file).parent))
    return {uuid: (incumbent_median_us(blocks[uuid]), sheet.times_us[uuid]) for uuid in sheet.axes}


def _how_to_measure(sheet: Sheet, baseline: str) -> str:
    """Commands that make the evidence; of the packed solution, where it lies beside."""
    packed = Path(sheet.file).with_name("solution.json")
    solution, target = "DIR", ""
    if not sheet.foreign:
        target = f" --target {sheet.target}"
        solution = shlex.quote(str(packed)) if packed.is_file() else solution
    name = shlex.quote(baseline)
    return (
        f"measure it with: kopt sweep {solution}{target} --baseline {name} --out-dir results, "
        f"then: kopt score results --baseline {name}"
    )


def _beside(sheet: Sheet, other: Sheet) -> bool:
    same = (sheet.definition, sheet.target, sheet.epoch)
    is_same = same == (other.definition, other.target, other.epoch)
    return is_same and sheet.epoch is not None and sheet.solution != other.solution


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.json")) if path.is_dir() else [path]


def _own(path: Path, *, named: bool) -> Iterator[Sheet]:
    """Sheets of a document that kopt wrote; none of any other file."""
    if path.suffix != ".json":
        return
    try:
        value = read_json(path, "result file")
    except KoptError:
        if named:
            raise
        return
    documents = value.get("sweeps") if isinstance(value, dict) and "sweeps" in value else [value]
    for document in documents if isinstance(documents, list) else ():
        read = _reader_of(document)
        if read is None:
            continue
        try:
            yield read(str(path), document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{str(path)!r} is not as kopt wrote it: {type(error).__name__} {error}",
                hint="measure again",
            ) from error


def _reader_of(document: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(document.get("workloads"), list):
        return None
    keys = document.keys()
    if {"baselines", "definition", "solution", "target"} <= keys:
        return _summary
    return _evaluation if {"solution", "target", "verdict", "environment"} <= keys else None


def _summary(file: str, document: dict[str, Any]) -> Sheet:
    rows = {row["uuid"]: row for row in document["workloads"]}
    names = {name for row in rows.values() for name in row["baselines"]}
    has_blocks = Path(file).with_name(SAMPLES_FILE).is_file()
    replaced = (document.get("incumbent") or {}).get("name") if has_blocks else None
    return Sheet(
        file=file,
        definition=str(document["definition"]),
        target=str(document["target"]),
        solution=str(document["solution"]["name"]),
        sha256=document["solution"]["sha256"],
        epoch=document.get("epoch"),
        passed=dict.fromkeys(rows, True),
        times_us={uuid: _us(row["median_us"]) for uuid, row in rows.items()},
        baselines={
            name: {
                uuid: (_us(row["baselines"].get(name)), _us(row["median_us"]))
                for uuid, row in rows.items()
            }
            for name in names
        },
        axes={uuid: dict(row["axes"]) for uuid, row in rows.items()} if has_blocks else {},
        replaced=None if replaced is None else str(replaced),
    )


def _evaluation(file: str, document: dict[str, Any]) -> Sheet:
    rows = {row["uuid"]: row for row in document["workloads"]}
    compared = [document.get("comparison"), document.get("baseline")]
    names = {name for row in rows.values() for name in row.get("baselines", ())}
    return Sheet(
        file=file,
        definition=str(document["solution"]["definition"]),
        target=str(document["target"]),
        solution=str(document["solution"]["name"]),
        sha256=document["solution"]["sha256"],
        epoch=document["environment"].get("epoch"),
        passed={
            uuid: row["verdict"] == "pass"
            for uuid, row in rows.items()
            if row["verdict"] not in _NOTHING_LEARNT
        },
        times_us={uuid: _us(_median(row)) for uuid, row in rows.items()},
        baselines={
            # Of several baselines only the first has its comparison in the document.
            name: {
                uuid: (_us(row["baselines"].get(name)), _us(_median(row)))
                for uuid, row in rows.items()
            }
            for name in names
        }
        | {
            comparison["a"]["name"]: {
                row["uuid"]: (_us(row["a_median_us"]), _us(row["b_median_us"]))
                for row in comparison["workloads"]
            }
            for comparison in compared
            if comparison
        },
    )


def _median(row: Mapping[str, Any]) -> Any:
    """Of a ``bench`` document beside the axes, of others in the timing."""
    return row["median_us"] if "median_us" in row else (row.get("timing") or {}).get("median_us")


def _us(value: Any) -> float | None:
    """A time, checked.

    Raises:
        ValueError: If it is no positive number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"the time {value!r} is not positive")
    return float(value)


def _foreign(path: Path, knowledge: Knowledge) -> Iterator[Sheet]:
    for run in make_runs(read_results([path]).results, knowledge):
        if not run.is_mean:
            yield _foreign_sheet(run, knowledge)


def _foreign_sheet(run: Run, knowledge: Knowledge) -> Sheet:
    rows = {result.workload or "": result for result in run.results}
    hardware = {str(result.environment) for result in run.results}
    target = knowledge.target_of(" ".join(sorted(hardware)))
    times = {
        uuid: row.latency_ms * 1e3 if row.latency_ms and row.latency_ms > 0 else None
        for uuid, row in rows.items()
    }
    references = {
        uuid: (row.reference_latency_ms * 1e3 if row.reference_latency_ms else None, times[uuid])
        for uuid, row in rows.items()
    }
    return Sheet(
        file=run.file,
        definition=run.definition,
        target="unknown" if target is None else target.name,
        solution=run.label,
        sha256=run.source,
        epoch=None,
        passed={uuid: row.outcome == "passed" for uuid, row in rows.items()},
        times_us=times,
        baselines={REFERENCE: references} if any(base for base, _ in references.values()) else {},
        foreign=True,
    )
