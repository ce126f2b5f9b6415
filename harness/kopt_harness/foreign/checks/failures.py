"""Failures of a machine, an account or a network that are stored as failures of a solution."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ..finding import Case, Finding, FindingCode, Severity
from ..record import ForeignResult
from ._text import plural

__all__ = ["check"]


class _Cause(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    certain: bool
    """Whether no solution can bring it about by itself."""


def _cause(name: str, pattern: str, *, certain: bool) -> _Cause:
    return _Cause(name, re.compile(pattern, re.IGNORECASE), certain)


CAUSES = (
    _cause(
        "a spending limit or a quota",
        r"billing|spend(ing)? limit|payment required|insufficient (funds|credits?|quota)"
        r"|quota exceeded|rate limit|too many requests",
        certain=True,
    ),
    _cause(
        "a connection",
        r"connection (refused|reset|aborted|timed out|closed)|connectionerror|broken pipe"
        r"|name or service not known|temporary failure in name resolution|network is unreachable"
        r"|no route to host|service unavailable|bad gateway|gateway time-?out",
        certain=True,
    ),
    _cause(
        "the driver or the device",
        r"no cuda-capable device|cuda driver version is insufficient|driver/library version"
        r"|no nvidia driver|uncorrectable ecc|fallen off the bus|device is in use"
        r"|all cuda-capable devices are busy|libcuda\.so[.\d]* *: cannot open",
        certain=True,
    ),
    _cause(
        "the disk",
        r"no space left on device|disk quota|read-only file system|input/output error",
        certain=True,
    ),
    _cause(
        "a worker that went away",
        r"worker (died|lost|was killed)|container (was )?(killed|terminated|preempted)|preempted"
        r"|out of memory: killed|spot instance",
        certain=True,
    ),
    _cause("memory of the device", r"cuda (error: )?out of memory|outofmemoryerror", certain=False),
    _cause(
        "a missing package or tool",
        r"no module named|modulenotfounderror|importerror|cannot open shared object"
        r"|nvcc(:| was)? not found|command not found",
        certain=False,
    ),
    _cause("a time limit", r"timed? ?out|time limit|deadline exceeded", certain=False),
)
"""The first that matches is taken. What a solution can also cause (a time limit, memory, an
import of its own) is a possibility, the rest is certain."""


def check(case: Case) -> Iterator[Finding]:
    """One finding of each cause."""
    results = [r for r in case.results if r.kind in ("workload", "mean")]
    found: dict[_Cause, list[ForeignResult]] = defaultdict(list)
    for result in results:
        if result.outcome == "failed":
            text = f"{result.status.replace('_', ' ')}\n{result.message}"
            cause = next((c for c in CAUSES if c.pattern.search(text)), None)
            if cause is not None:
                found[cause].append(result)
    failures = sum(result.outcome == "failed" for result in results)
    for cause, failed in found.items():
        yield _finding(cause, failed, len(results), failures)


def _finding(cause: _Cause, failed: list[ForeignResult], results: int, failures: int) -> Finding:
    statuses = ", ".join(sorted({result.status for result in failed}))
    zero = sum(result.score == 0 for result in failed)
    scored = f", {zero} of them with a score of 0" if zero else ""
    sense = "is" if cause.certain else "may be"
    return Finding(
        code=FindingCode.INFRA_AS_FAILURE if cause.certain else FindingCode.POSSIBLE_INFRA,
        severity=Severity.WRONG if cause.certain else Severity.DOUBTFUL,
        detail=(
            f"{len(failed)} of {plural(results, 'result')}, and of {plural(failures, 'failure')}, "
            f"are stored as {statuses}{scored}; the cause {sense} {cause.name}, which says nothing "
            "about a solution"
        ),
        evidence=tuple(str(result.place) for result in failed),
        figures={"results": len(failed), "of": results, "failures": failures},
    )
