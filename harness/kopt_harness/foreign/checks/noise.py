"""Winners that repeats of one source would have reordered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..finding import Case, Finding, FindingCode, Severity
from ..runs import Group, Run, epochs, spread
from ._text import factor, ms, percent, plural

__all__ = ["check"]


class _Metric(NamedTuple):
    name: str
    value: Callable[[Run], float | None]
    show: Callable[[float], str]
    higher_is_better: bool


METRICS = (
    _Metric("speed-up", lambda run: run.speedup, factor, higher_is_better=True),
    _Metric("latency", lambda run: run.latency_ms, ms, higher_is_better=False),
)


def check(case: Case) -> Iterator[Finding]:
    """The margin of the best against the spread of repeats, within one epoch."""
    for group in case.groups:
        for part in epochs(group):
            by_source: dict[str, list[Run]] = defaultdict(list)
            for run in part.runs:
                by_source[run.source or run.label].append(run)
            if len(by_source) < 2:
                continue
            if all(len(runs) == 1 for runs in by_source.values()):
                yield _no_repeats(part)
                continue
            for metric in METRICS:
                yield from _inside(part, by_source, metric)


def _no_repeats(group: Group) -> Finding:
    return Finding(
        code=FindingCode.NO_REPEATS,
        severity=Severity.DOUBTFUL,
        detail=(
            f"{plural(len(group.runs), 'solution')} of {group.definition} were measured once "
            "each: nothing says how far apart two measurements of one solution are"
        ),
        evidence=tuple(run.first_place for run in group.runs),
        figures={"runs": len(group.runs)},
    )


def _inside(group: Group, by_source: dict[str, list[Run]], metric: _Metric) -> Iterator[Finding]:
    values = {
        source: [value for run in runs if (value := metric.value(run)) is not None and value > 0]
        for source, runs in by_source.items()
    }
    noisiest = max(values, key=lambda source: spread(values[source]))
    noise = spread(values[noisiest])
    ends = max if metric.higher_is_better else min
    best = sorted(
        ((ends(found), source) for source, found in values.items() if found),
        reverse=metric.higher_is_better,
    )
    if len(best) < 2 or not noise:
        return
    within = [
        (value, source)
        for value, source in best[1:]
        if max(value, best[0][0]) / min(value, best[0][0]) - 1 < noise
    ]
    if not within:
        return
    (top, top_source), (second, _) = best[0], within[0]
    margin = max(top, second) / min(top, second) - 1
    first, varied = by_source[top_source][0].label, by_source[noisiest][0].label
    yield Finding(
        code=FindingCode.INSIDE_NOISE,
        severity=Severity.DOUBTFUL,
        detail=(
            f"by {metric.name} the best of {group.definition}, {first} "
            f"({metric.show(top)}), is {percent(margin)} ahead of the next "
            f"({metric.show(second)}), and {varied} alone differs by {percent(noise)} between its "
            f"{len(values[noisiest])} measurements: {plural(len(within), 'other')} of "
            f"{len(best) - 1} could as well be the best"
        ),
        evidence=tuple(
            run.first_place for source in (top_source, noisiest) for run in by_source[source]
        ),
        figures={"margin": margin, "noise": noise, "within": len(within)},
    )
