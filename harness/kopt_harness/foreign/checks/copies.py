"""One measurement under two names."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import Case, Finding, FindingCode, Severity
from ..runs import Run
from ._text import percent, some

__all__ = ["check"]

ROUNDING = 0.001
"""Two measurements of one kernel differ by more than this on most workloads; roundings of one
number do not."""
SHARE = 0.9
"""Of the workloads that both have."""
LEAST_WORKLOADS = 10
"""With fewer, two measurements can agree by chance."""


def check(case: Case) -> Iterator[Finding]:
    """Runs whose times agree within rounding on nearly all workloads, together."""
    families: list[list[Run]] = []
    for run in case.runs:
        if run.is_mean or len(run.timed) < LEAST_WORKLOADS:
            continue
        family = next((family for family in families if _equal(family[0], run)), None)
        if family is None:
            families.append([run])
        else:
            family.append(run)
    for family in families:
        if len(family) > 1:
            yield _finding(family)


def _equal(a: Run, b: Run) -> bool:
    if a.definition != b.definition:
        return False
    first, second = ({r.workload: r.latency_ms or 0.0 for r in run.timed} for run in (a, b))
    both = first.keys() & second.keys()
    equal = sum(abs(first[uuid] - second[uuid]) <= ROUNDING * first[uuid] for uuid in both)
    return len(both) >= LEAST_WORKLOADS and equal >= SHARE * len(both)


def _finding(family: list[Run]) -> Finding:
    return Finding(
        code=FindingCode.SAME_NUMBERS,
        severity=Severity.DOUBTFUL,
        detail=(
            f"{some([run.label for run in family])} have times of {family[0].definition} that "
            f"agree within {percent(ROUNDING)} on {percent(SHARE)} of the workloads or more: one "
            f"measurement under {len(family)} names"
        ),
        evidence=tuple(run.first_place for run in family),
        figures={"names": len(family)},
    )
