"""Comparisons across machines, clocks or days: one source with two times, two epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ..finding import Case, Finding, FindingCode, Severity
from ..runs import Group, Run, epochs
from ._text import factor, ms, plural, some

__all__ = ["check"]

SAME_SOURCE_APART = 0.1
"""How far two times of one source may differ. Repeats of one kernel on machines of one kind
agree within 2 % (H200, driver 580, 2026-11-29); a tenth is another machine, clock or cache."""

_HARDWARE = ("hardware", "gpu", "device", "accelerator")


def check(case: Case) -> Iterator[Finding]:
    """One source with times that differ, references in two states, environments that differ."""
    for group in case.groups:
        yield from _same_source(group)
        yield from _mixed_epochs(group)
        yield from _mixed_environment(group)
    yield from _unchanged(case)


def _unchanged(case: Case) -> Iterator[Finding]:
    """Steps of a search from one best to the next in which the source stayed."""
    chosen = [r for r in case.results if r.kind == "selected" and r.timestamp is not None]
    chosen.sort(key=lambda result: result.timestamp or "")
    for before, after in pairwise(chosen):
        source = after.source_sha256
        if (
            source is None
            or source != before.source_sha256
            or not before.score
            or not after.score
            or before.score <= 0
        ):
            continue
        gain = after.score / before.score
        if abs(gain - 1) <= SAME_SOURCE_APART or before.definition != after.definition:
            continue
        yield Finding(
            code=FindingCode.IMPROVEMENT_WITHOUT_CHANGE,
            severity=Severity.WRONG,
            detail=(
                f"the search's best went from a score of {factor(before.score)} to "
                f"{factor(after.score)} with the source {source[:12]} unchanged"
            ),
            evidence=(str(before.place), str(after.place)),
            figures={"factor": gain},
        )


def _same_source(group: Group) -> Iterator[Finding]:
    by_source: dict[str, list[Run]] = defaultdict(list)
    for run in group.runs:
        if run.source is not None:
            by_source[run.source].append(run)
    for source, runs in by_source.items():
        times = [run.latency_ms for run in runs if run.latency_ms is not None]
        if min(times) <= 0 or max(times) <= (1 + SAME_SOURCE_APART) * min(times):
            continue
        apart = max(times) / min(times)
        detail = (
            f"the source {source[:12]} was measured {plural(len(runs), 'time')} at "
            f"{ms(min(times))} to {ms(max(times))}, a factor of {factor(apart)}: the code did not "
            "change, so the machine or the way of measuring did"
        )
        yield Finding(
            code=FindingCode.SAME_SOURCE_OTHER_TIME,
            severity=Severity.WRONG,
            detail=detail,
            evidence=tuple(place for run in runs for place in run.evidence),
            figures={"factor": apart, "runs": len(runs)},
        )


def _mixed_epochs(group: Group) -> Iterator[Finding]:
    parts = epochs(group)
    if len(parts) < 2:
        return
    shown, ranges = [], []
    for part in parts:
        references = [run.reference_ms for run in part.runs if run.reference_ms is not None]
        ranges.append((min(references), max(references)))
        shown.append(f"{len(references)} at {ms(min(references))} to {ms(max(references))}")
    gap = max(after[0] / before[1] for before, after in pairwise(ranges))
    detail = (
        f"the reference of {group.definition} is in {len(parts)} states ({', '.join(shown)}), at "
        f"least a factor of {factor(gap)} apart: speed-ups of different states do not compare"
    )
    yield Finding(
        code=FindingCode.MIXED_EPOCHS,
        severity=Severity.WRONG,
        detail=detail,
        evidence=tuple(run.first_place for part in parts for run in part.runs),
        figures={"states": len(parts), "gap": gap},
    )


def _mixed_environment(group: Group) -> Iterator[Finding]:
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in group.runs:
        for result in run.timed:
            for key, value in _flat(result.environment):
                values[key][value].append(str(result.place))
    kinds: dict[FindingCode, list[str]] = defaultdict(list)
    for key, found in values.items():
        if len(found) > 1:
            kinds[_code_of(key)].append(key)
    for code, keys in kinds.items():
        severity = Severity.DOUBTFUL if code is FindingCode.MIXED_SOFTWARE else Severity.WRONG
        different = [f"{key}: {some(list(values[key]))}" for key in keys]
        places = {places[0]: None for key in keys for places in values[key].values()}
        detail = (
            f"results of {group.definition} that are compared with each other differ in "
            f"{some(different)}"
        )
        yield Finding(
            code=code,
            severity=severity,
            detail=detail,
            evidence=tuple(places),
            figures={"keys": len(keys)},
        )


def _code_of(key: str) -> FindingCode:
    if "clock" in key.casefold():
        return FindingCode.MIXED_CLOCKS
    words = key.casefold().split(".")
    if any(words[-1].startswith(name) for name in _HARDWARE):
        return FindingCode.MIXED_HARDWARE
    return FindingCode.MIXED_SOFTWARE


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            yield f"{prefix}{key}", str(inner)
