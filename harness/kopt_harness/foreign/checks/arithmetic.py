"""Numbers that do not follow from the numbers beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..finding import Case, Finding, FindingCode, Severity
from ..record import ForeignResult
from ..runs import Run
from ._text import factor, plural

__all__ = ["check"]

ROUNDING = 0.02
"""How far a written speed-up may be from its latencies: two-digit roundings of microseconds."""
SUMMARY_ROUNDING = 0.001
"""How far a written mean may be from the entries: digits cut in a file."""
MEANS_APART = 0.1
"""From where on mean of ratios and ratio of means tell different stories."""


def check(case: Case) -> Iterator[Finding]:
    """Speed-ups, summaries, and the two kinds of mean."""
    yield from _speedups(case)
    yield from _summaries(case)
    yield from _means(case)


def _speedups(case: Case) -> Iterator[Finding]:
    wrong = [result for result in case.results if result.kind == "workload" and _off(result)]
    if not wrong:
        return
    worst = max(wrong, key=_error)
    assert worst.speedup is not None, "only results with one are wrong"
    yield Finding(
        code=FindingCode.SPEEDUP_MISMATCH,
        severity=Severity.WRONG,
        detail=(
            f"{plural(len(wrong), 'speed-up')} are not the reference over the latency beside them; "
            f"the worst is {factor(worst.speedup)} where the times give {factor(_ratio(worst))}"
        ),
        evidence=tuple(str(result.place) for result in wrong),
        figures={"results": len(wrong), "worst_error": _error(worst)},
    )


def _ratio(result: ForeignResult) -> float:
    return (result.reference_latency_ms or 0.0) / (result.latency_ms or 1.0)


def _error(result: ForeignResult) -> float:
    return abs((result.speedup or 0.0) / _ratio(result) - 1)


def _off(result: ForeignResult) -> bool:
    known = result.latency_ms and result.reference_latency_ms and result.speedup is not None
    return bool(known) and _error(result) > ROUNDING


def _summaries(case: Case) -> Iterator[Finding]:
    for summary in case.results:
        if summary.kind != "summary":
            continue
        runs = [
            run
            for run in case.runs
            if run.file == summary.place.file and run.results[0].definition == summary.definition
        ]
        if len(runs) != 1:
            continue
        stated = {
            "latency_ms": (summary.latency_ms, runs[0].latency_ms),
            "reference_latency_ms": (summary.reference_latency_ms, runs[0].reference_ms),
            "speedup": (summary.speedup, runs[0].speedup),
        }
        wrong = {
            name: (said, found)
            for name, (said, found) in stated.items()
            if said is not None and found and abs(said / found - 1) > SUMMARY_ROUNDING
        }
        if wrong:
            shown = [f"{n} {factor(s)} for {factor(f)}" for n, (s, f) in wrong.items()]
            yield Finding(
                code=FindingCode.SUMMARY_MISMATCH,
                severity=Severity.WRONG,
                detail=(
                    f"the summary of {summary.definition} states means that its own entries do "
                    f"not have: {', '.join(shown)}"
                ),
                evidence=(str(summary.place),),
                figures={name: said / found for name, (said, found) in wrong.items()},
            )


def _means(case: Case) -> Iterator[Finding]:
    apart: dict[tuple[str, str], list[tuple[Run, float, float]]] = defaultdict(list)
    for run in case.runs:
        several = run.is_mean or len(run.timed) > 1
        if several and run.speedup and run.latency_ms and run.reference_ms:
            of_means = run.reference_ms / run.latency_ms
            if max(of_means / run.speedup, run.speedup / of_means) > 1 + MEANS_APART:
                where = "" if run.is_mean else run.file
                apart[run.definition, where].append((run, run.speedup, of_means))
    for (definition, _), found in apart.items():
        worst = max(found, key=lambda each: max(each[1] / each[2], each[2] / each[1]))
        run, of_ratios, of_means = worst
        count = "" if len(found) == 1 else f"; {len(found)} evaluations are like it, this the worst"
        yield Finding(
            code=FindingCode.MEANS_DISAGREE,
            severity=Severity.DOUBTFUL,
            detail=(
                f"{definition}, {run.label}: the mean of the ratios is {factor(of_ratios)} and the "
                f"ratio of the means {factor(of_means)}{count}; the one weighs every workload "
                "alike, the other by its time"
            ),
            evidence=tuple(each[0].first_place for each in found),
            figures={"mean_of_ratios": of_ratios, "ratio_of_means": of_means, "runs": len(found)},
        )
