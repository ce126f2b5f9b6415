"""A critical reading of foreign results: every check is asked, findings come worst first."""

from __future__ import annotations

from collections.abc import Sequence

from .checks import list_checks
from .finding import Case, Finding, FindingCode, Severity
from .knowledge import Knowledge
from .record import ForeignResult
from .runs import make_runs

__all__ = ["Finding", "FindingCode", "Severity", "audit"]


def audit(results: Sequence[ForeignResult], knowledge: Knowledge) -> tuple[Finding, ...]:
    """What a careful reviewer would ask about.

    Args:
        results: Of any number of files; results of one definition are compared with each other.
        knowledge: Workload lists, cost models and hardware.
    """
    case = Case(tuple(results), make_runs(results, knowledge), knowledge)
    findings = [finding for check in list_checks() for finding in check(case)]
    order = list(Severity)
    codes = list(FindingCode)
    findings.sort(key=lambda f: (order.index(f.severity), codes.index(f.code)))
    return tuple(findings)
