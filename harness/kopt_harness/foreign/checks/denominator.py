"""Rankings by speed-up where the reference below the fraction line is what varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple

from ..finding import Case, Finding, FindingCode, Severity
from ..record import ForeignResult
from ..runs import Group, Run, epochs, spread
from ._text import factor, ms, percent, plural

__all__ = ["check"]

REFERENCE_APART = 0.02
"""How far the reference may vary between evaluations before it can choose the winner. A kernel
repeats within 2 % on machines of one kind; a reference that does no worse does no harm."""
EQUAL_SHAPES_APART = 0.2
"""How far the reference may vary between workloads with equal axes. What the inputs hold can
cost a reference something; a fifth and more, where the solution stays put, is the machine."""
SWING = 1.1
"""Factor in the mean speed-up from which on such a reference makes it another number."""
STEADY = 4.0
"""The solution is steady where the reference varies this many times as much."""


class _Entry(NamedTuple):
    run: Run
    latency_ms: float
    reference_ms: float
    speedup: float


def check(case: Case) -> Iterator[Finding]:
    """Across evaluations, and within one evaluation across workloads of equal axes."""
    for group in case.groups:
        for part in epochs(group):
            yield from _across(part)
    seen: set[tuple[str, str]] = set()
    for run in case.runs:
        # Columns of one table share their reference.
        if not run.is_mean and (run.file, run.definition) not in seen:
            found = list(_within(run, case))
            seen |= {(run.file, run.definition)} if found else set()
            yield from found


def _across(group: Group) -> Iterator[Finding]:
    entries = [
        _Entry(run, run.latency_ms, run.reference_ms, run.speedup)
        for run in group.runs
        if run.latency_ms and run.reference_ms and run.speedup
    ]
    if len(entries) < 2:
        return
    references = [entry.reference_ms for entry in entries]
    varies = spread(references)
    if varies <= REFERENCE_APART:
        return
    typical = median(references)
    best = max(entries, key=lambda e: e.speedup)
    fastest = min(entries, key=lambda e: e.latency_ms)
    owed = best.reference_ms / typical - 1
    pairs = list(combinations(entries, 2))
    swapped = sum((a.latency_ms - b.latency_ms) * (a.speedup - b.speedup) > 0 for a, b in pairs)
    head = (
        f"the reference of {group.definition} varies by {percent(varies)} over "
        f"{len(entries)} evaluations ({ms(min(references))} to {ms(max(references))}), and "
        f"{swapped} of {plural(len(pairs), 'pair')} are ordered otherwise by latency than by "
        "speed-up"
    )
    changed = best.latency_ms > fastest.latency_ms
    if changed:
        rank = 1 + sum(entry.latency_ms < best.latency_ms for entry in entries)
        tail = (
            f"the best by speed-up, {best.run.label} ({factor(best.speedup)}, "
            f"{ms(best.latency_ms)}), is number {rank} by latency behind {fastest.run.label} "
            f"({factor(fastest.speedup)}, {ms(fastest.latency_ms)}), and {percent(owed)} of its "
            f"speed-up is due to its reference of {ms(best.reference_ms)} against a median of "
            f"{ms(typical)}; at that median the two have {factor(_at(best, typical))} and "
            f"{factor(_at(fastest, typical))}"
        )
    else:
        tail = f"the best, {best.run.label}, is the fastest as well"
    yield Finding(
        code=FindingCode.NOISY_DENOMINATOR,
        severity=Severity.WRONG if changed else Severity.DOUBTFUL,
        detail=f"{head}; {tail}",
        evidence=(best.run.first_place, fastest.run.first_place) if changed else _places(entries),
        figures={
            "reference_spread": varies,
            "owed": owed,
            "swapped_pairs": swapped,
            "pairs": len(pairs),
            "latency_rank": 1 + sum(e.latency_ms < best.latency_ms for e in entries),
        },
    )


def _at(entry: _Entry, reference_ms: float) -> float:
    """The speed-up, had its reference taken this long."""
    return entry.speedup * reference_ms / entry.reference_ms


def _places(entries: list[_Entry]) -> tuple[str, ...]:
    least = min(entries, key=lambda e: e.reference_ms)
    most = max(entries, key=lambda e: e.reference_ms)
    return least.run.first_place, most.run.first_place


def _within(run: Run, case: Case) -> Iterator[Finding]:
    """The swing of the mean speed-up if each shape had its least or its greatest reference."""
    alike: dict[tuple[tuple[str, int], ...], list[ForeignResult]] = defaultdict(list)
    for result in run.timed:
        if result.latency_ms and result.reference_latency_ms:
            alike[_axes(result, case)].append(result)
    alike.pop((), None)
    several = [results for results in alike.values() if len(results) > 1]
    if not several:
        return
    widest = max(several, key=lambda results: spread(_references(results)))
    varies = spread(_references(widest))
    steady = spread([result.latency_ms or 0.0 for result in widest])
    if varies <= EQUAL_SHAPES_APART or varies < STEADY * steady:
        return
    swing = [
        fmean(end(_references(rs)) / (r.latency_ms or 1.0) for rs in alike.values() for r in rs)
        for end in (min, max)
    ]
    axes = ", ".join(f"{key}={value}" for key, value in _axes(widest[0], case))
    detail = (
        f"{run.definition}, {run.label}: at equal axes ({axes}, {len(widest)} workloads) the "
        f"reference takes {ms(min(_references(widest)))} to {ms(max(_references(widest)))} while "
        f"the solution varies by {percent(steady)}; the mean speed-up would be "
        f"{factor(swing[0])} with the least and {factor(swing[1])} with the greatest reference of "
        "each shape"
    )
    yield Finding(
        code=FindingCode.UNEQUAL_REFERENCES,
        severity=Severity.WRONG if swing[1] / swing[0] > SWING else Severity.DOUBTFUL,
        detail=detail,
        evidence=tuple(str(result.place) for result in widest),
        figures={"reference_spread": varies, "least": swing[0], "greatest": swing[1]},
    )


def _axes(result: ForeignResult, case: Case) -> tuple[tuple[str, int], ...]:
    definition = case.knowledge.definition(result)
    if definition is not None and result.workload:
        workload = case.knowledge.workloads(definition).get(result.workload)
        if workload is not None:
            return tuple(workload.axes.items())
    return tuple(result.axes.items())


def _references(results: list[ForeignResult]) -> list[float]:
    return [result.reference_latency_ms or 0.0 for result in results]
