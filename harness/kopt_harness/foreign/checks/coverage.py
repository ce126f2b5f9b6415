"""Which workloads are there, and what is claimed about the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...schema import Definition
from ..finding import Case, Finding, FindingCode, Severity
from ..record import ForeignResult
from ..runs import Run
from ._text import plural, some

__all__ = ["check"]


def check(case: Case) -> Iterator[Finding]:
    """Missing workloads, unknown ones, and means that leave something out."""
    summaries = {
        (result.place.file, result.definition): result
        for result in case.results
        if result.kind == "summary" and result.latency_ms is not None
    }
    unknown: dict[str, Run] = {}
    means: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
    for run in case.runs:
        first = run.results[0]
        definition = case.knowledge.definition(first)
        summary = summaries.get((first.place.file, first.definition))
        if summary is not None:
            yield from _left_out(run, summary)
        if definition is None:
            unknown.setdefault(run.definition, run)
        elif not run.is_mean:
            yield from _sweep(run, definition, summary, case)
        elif first.workload_count is not None:
            total = len(case.knowledge.workloads(definition))
            means[definition.name, first.workload_count, total].append(run)
    for (name, count, total), runs in means.items():
        if count < total:
            yield _mean_of_part(name, count, total, runs)
    for name, run in unknown.items():
        yield Finding(
            code=FindingCode.UNKNOWN_DEFINITION,
            severity=Severity.NOTE,
            detail=f"kopt does not know {name!r}: neither coverage nor floors were looked at",
            evidence=(run.first_place,),
        )


def _sweep(
    run: Run, definition: Definition, summary: ForeignResult | None, case: Case
) -> Iterator[Finding]:
    known = case.knowledge.workloads(definition)
    present = {result.workload for result in run.results}
    foreign = sorted(uuid or "without a uuid" for uuid in present - known.keys())
    if foreign:
        yield Finding(
            code=FindingCode.UNKNOWN_WORKLOADS,
            severity=Severity.DOUBTFUL,
            detail=(
                f"{run.label} has {plural(len(foreign), 'workload')} that {definition.name} does "
                f"not have: {some(foreign)}"
            ),
            evidence=tuple(str(r.place) for r in run.results if r.workload not in known),
            figures={"unknown": len(foreign)},
        )
    missing = [uuid for uuid in known if uuid not in present]
    if not missing:
        return
    claim = "" if summary is None else ", and a mean over them is stated for the definition"
    yield Finding(
        code=FindingCode.PARTIAL_SWEEP if summary is None else FindingCode.SUBSET_CLAIM,
        severity=Severity.DOUBTFUL if summary is None else Severity.WRONG,
        detail=(
            f"{run.label} has {len(known) - len(missing)} of {len(known)} workloads of "
            f"{definition.name}{claim}; missing: {some(missing)}"
        ),
        evidence=(run.first_place if summary is None else str(summary.place),),
        figures={"missing": len(missing), "of": len(known)},
    )


def _left_out(run: Run, summary: ForeignResult) -> Iterator[Finding]:
    failed = [result for result in run.results if result.outcome == "failed"]
    if not failed:
        return
    yield Finding(
        code=FindingCode.FAILURES_LEFT_OUT,
        severity=Severity.WRONG,
        detail=(
            f"{run.definition} in {run.file}: {len(failed)} of {len(run.results)} workloads failed "
            "and the stated means are of the others; by the official rule the score is 0"
        ),
        evidence=(str(summary.place), *(str(result.place) for result in failed)),
        figures={"failed": len(failed), "of": len(run.results)},
    )


def _mean_of_part(name: str, count: int, total: int, runs: list[Run]) -> Finding:
    return Finding(
        code=FindingCode.SUBSET_CLAIM,
        severity=Severity.WRONG,
        detail=(
            f"{plural(len(runs), 'evaluation')} of {name} have means over {count} of {total} "
            "workloads, and scores as if that were the definition"
        ),
        evidence=tuple(run.first_place for run in runs),
        figures={"workloads": count, "of": total, "runs": len(runs)},
    )
