"""What was tried, with what effect: all probes of all runs, the rejected ones included.

A row is one candidate in one regime, found by definition, target, regime, direction and
technique. It is derived from journals alone, and from nothing that anybody said about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log
from typing import Literal, NamedTuple

from kopt_harness.archive import Archive
from kopt_harness.errors import InvalidInputError
from kopt_harness.journal import read_journal
from kopt_harness.schema import Model, Verdict

from .memory import Effect, Memory, RoundMemory, Trial, closed_rounds
from .result import Attribution, RoundResult

__all__ = ["Evidence", "Key", "Pooled", "collect", "pool"]

Outcome = Literal["faster", "slower", "undecided", "wrong", "not-judged"]


class Key(NamedTuple):
    """By what evidence is found."""

    definition: str
    target: str
    regime: str
    """Empty where nothing was timed."""
    direction: str
    technique: str


class Evidence(Model):
    """One candidate in one regime."""

    definition: str
    target: str
    regime: str
    direction: str
    technique: str
    attribution: Attribution | None = None
    """To what the effect is put down; null where that was not told."""
    outcome: Outcome
    """In this regime: by the interval, not by its middle."""
    ratio: float | None
    """Over the incumbent of its round; below 1 is faster."""
    ci: tuple[float, float] | None
    promoted: bool
    """Whether it became the incumbent."""
    run: str
    round: int
    name: str
    sha256: str

    @property
    def key(self) -> Key:
        """By what it is found."""
        return Key(self.definition, self.target, self.regime, self.direction, self.technique)


class Pooled(NamedTuple):
    """All evidence under one key."""

    key: Key
    tried: int
    faster: int
    slower: int
    wrong: int
    ratio: float | None
    """Geometric mean, each candidate weighted with the precision of its interval."""
    ci: tuple[float, float] | None
    """Of that mean: as if the effects were one effect, so too narrow where they are not."""


def collect(
    archive: Archive, definition: str | None = None, target: str | None = None
) -> tuple[Evidence, ...]:
    """All evidence of an archive, oldest first; unreadable runs are left out.

    Args:
        archive: Of this machine.
        definition: Full id; None: of all.
        target: None: of all.
    """
    found: list[Evidence] = []
    for run in archive.runs():
        try:
            results = closed_rounds(read_journal(run.journal_path))
        except InvalidInputError:
            # A damaged journal is named by kopt history; it must not hide the others.
            continue
        for result in results:
            if definition in (None, result.definition) and target in (None, result.target):
                found += _rows(run.id, result)
    return tuple(found)


def _rows(run: str, result: RoundResult) -> Iterator[Evidence]:
    (past,) = Memory().learn(run, result).rounds
    for trial in past.trials:
        overall = Effect(regime="", ratio=trial.ratio, ci=trial.ci)
        for effect in trial.effects or (overall,):
            yield Evidence(
                definition=result.definition,
                target=result.target,
                regime=effect.regime,
                direction=past.direction,
                technique=trial.technique or trial.family or "",
                attribution=trial.attribution,
                outcome=_outcome(trial, effect.ci),
                ratio=effect.ratio,
                ci=effect.ci,
                promoted=_became_incumbent(past, trial),
                run=run,
                round=past.round,
                name=trial.name,
                sha256=trial.sha256,
            )


def _became_incumbent(past: RoundMemory, trial: Trial) -> bool:
    return past.promoted and past.swept == trial.sha256


def _outcome(trial: Trial, ci: tuple[float, float] | None) -> Outcome:
    if trial.verdict in (Verdict.INFRA, Verdict.INVALID):
        return "not-judged"
    if trial.verdict is not Verdict.PASS:
        return "wrong"
    if ci is None or ci[0] <= 1 <= ci[1]:
        return "undecided"
    return "faster" if ci[1] < 1 else "slower"


def pool(rows: Iterable[Evidence]) -> tuple[Pooled, ...]:
    """Evidence by key, in the order in which the keys first stand there."""
    by_key: dict[Key, list[Evidence]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    return tuple(_pooled(key, group) for key, group in by_key.items())


def _pooled(key: Key, rows: Sequence[Evidence]) -> Pooled:
    effects = [(row.ratio, row.ci) for row in rows if row.ratio is not None and row.ci is not None]
    widths = [max(log(ci[1] / ci[0]), 1e-6) for _, ci in effects]
    ratio = interval = None
    if effects:
        weights = [1 / width**2 for width in widths]
        pairs = zip(weights, effects, strict=True)
        mean = sum(weight * log(each) for weight, (each, _) in pairs) / sum(weights)
        half = 0.5 / sum(weights) ** 0.5
        ratio, interval = exp(mean), (exp(mean - half), exp(mean + half))
    count = [row.outcome for row in rows].count
    return Pooled(key, len(rows), count("faster"), count("slower"), count("wrong"), ratio, interval)
