"""What a reading of the sources says: findings by place, flags, perhaps a rejection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kopt_harness.schema import Flag, Model, Reason

from .rules import RULES, Level

__all__ = ["Finding", "LintReport", "Place", "report"]

_MAX_FINDINGS = 200
"""A file of nothing but findings does not make a report of its own size."""
_MAX_TEXT = 120
_SHOWN = 3
"""Places that a flag names; all of them are among the findings."""


class Place(NamedTuple):
    """Where something is, and what it says there."""

    path: str
    line: int
    column: int
    """Both from 1."""
    text: str


class Finding(Model):
    """One place in one source."""

    rule: str
    """Name of a rule of ``rules.RULES``."""
    level: Level
    path: str
    line: int
    """From 1."""
    column: int
    """From 1."""
    text: str
    """The line, without its indentation."""
    why: str
    """One sentence for a person."""

    @property
    def where(self) -> str:
        """As compilers write it."""
        return f"{self.path}:{self.line}"


class LintReport(Model):
    """Of one solution."""

    findings: tuple[Finding, ...] = ()
    """By path, line and column."""
    reject: Reason | None = None
    """Set where the sources are evidence enough."""
    flags: tuple[Flag, ...] = ()
    """One a rule; they bar a promotion until a person has looked."""


def report(found: Iterable[tuple[str, Place]]) -> LintReport:
    """Sorts what rules have found; one finding for each rule and line."""
    places: dict[tuple[str, str, int], Place] = {}
    for rule, place in found:
        places.setdefault((rule, place.path, place.line), place)
    findings = sorted(
        (_finding(rule, place) for (rule, _, _), place in places.items()),
        key=lambda f: (f.path, f.line, f.column, f.rule),
    )
    refused = [finding for finding in findings if finding.level == "reject"]
    return LintReport(
        findings=tuple(findings[:_MAX_FINDINGS]),
        reject=_reason(refused) if refused else None,
        flags=tuple(_flags(f for f in findings if f.level == "flag")),
    )


def _finding(rule: str, place: Place) -> Finding:
    about = RULES[rule]
    return Finding(
        rule=rule,
        level=about.level,
        path=place.path,
        line=place.line,
        column=place.column,
        text=_printable(place.text.strip())[:_MAX_TEXT],
        why=about.why,
    )


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: 2 * _MAX_TEXT])


def _reason(refused: list[Finding]) -> Reason:
    first = refused[0]
    return Reason(code=f"lint-{first.rule}", detail=f"{first.where}: {first.why}: {first.text}")


def _flags(findings: Iterable[Finding]) -> Iterable[Flag]:
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, each in sorted(by_rule.items()):
        detail = ", ".join(finding.where for finding in each[:_SHOWN])
        if len(each) > _SHOWN:
            detail += f" and {len(each) - _SHOWN} more"
        yield Flag(code=f"lint-{rule}", detail=f"{detail}: {each[0].why}: {each[0].text}")
