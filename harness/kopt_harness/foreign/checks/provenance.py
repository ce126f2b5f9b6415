"""What a number should travel with, and does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..finding import Case, Finding, FindingCode, Severity
from ..record import ForeignResult
from ._text import plural

__all__ = ["check"]

_HARDWARE = ("hardware", "gpu", "device")
_SPREAD = ("samples", "std", "p95", "variance", "confidence", "ci")


def check(case: Case) -> Iterator[Finding]:
    """One finding of each kind, over all timed results."""
    timed = [r for r in case.results if r.kind in ("workload", "mean") and r.timed]
    for code, severity, lacks, what in _QUESTIONS:
        found = [result for result in timed if lacks(result)]
        if found:
            files = len({result.place.file for result in found})
            yield Finding(
                code=code,
                severity=severity,
                detail=(f"{len(found)} of {len(timed)} times, in {plural(files, 'file')}, {what}"),
                evidence=tuple(str(result.place) for result in found),
                figures={"results": len(found), "of": len(timed), "files": files},
            )


def _no_spread(result: ForeignResult) -> bool:
    if result.samples is not None and result.samples > 1:
        return False
    return not any(word in key for key in result.extra for word in _SPREAD)


def _no_hardware(result: ForeignResult) -> bool:
    return not any(word in key.casefold() for key in result.environment for word in _HARDWARE)


_Question = tuple[FindingCode, Severity, Callable[[ForeignResult], bool], str]

_QUESTIONS: tuple[_Question, ...] = (
    (
        FindingCode.NO_SPREAD,
        Severity.DOUBTFUL,
        _no_spread,
        "are single numbers, without samples, their count or their spread",
    ),
    (
        FindingCode.NO_ENVIRONMENT,
        Severity.DOUBTFUL,
        _no_hardware,
        "do not say on which hardware they were taken",
    ),
    (
        FindingCode.NO_SOURCE,
        Severity.NOTE,
        lambda result: result.source_sha256 is None,
        "have no hash of what was measured",
    ),
    (
        FindingCode.NO_VERDICT,
        Severity.DOUBTFUL,
        lambda result: result.outcome == "unknown",
        "have no word on whether the outputs were right",
    ),
    (
        FindingCode.NO_TIMESTAMP,
        Severity.NOTE,
        lambda result: result.timestamp is None,
        "have no date",
    ),
)
