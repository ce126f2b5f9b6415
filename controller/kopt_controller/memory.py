"""What earlier rounds have shown about one definition on one target, for and against.

A memory is a value: rounds are added, nothing is changed. A run starts from a snapshot of all
earlier runs, kept in its manifest, so that resuming it does not depend on what was learnt in
between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kopt_harness.archive import Archive
from kopt_harness.errors import InvalidInputError
from kopt_harness.journal import JournalRecord, read_journal
from kopt_harness.schema import Model, Verdict
from pydantic import ValidationError

from .kinds import PROMOTE_KEY
from .result import Attribution, Candidate, Label, PromoteOutcome, RoundResult
from .shown import ratio_text

__all__ = [
    "Effect",
    "Memory",
    "RoundMemory",
    "Trial",
    "closed_rounds",
    "gather",
    "parse_outcome",
    "parse_round",
    "promote_outcome",
]

RESULT_KEY = "result"
"""Last part of the journal key of a closed round: ``r<number>/result``."""

CLEARLY_FASTER = 0.95
"""A ratio at the gate below this deserves a sweep even if another candidate had it first."""

MOST_SWEEPS = 2
"""Against one incumbent: a campaign that asks for what cannot count would ask for ever."""

_NOT_THE_CANDIDATES_FAULT = frozenset({"coverage", "inputs", "trials"})
"""Conditions of a promotion that a sweep fails because of how it was asked for."""

_RESULT = re.compile(rf"r\d+/{RESULT_KEY}")


class Effect(Model):
    """What a candidate did to one regime."""

    regime: str
    ratio: float | None
    """Over the incumbent of its round; below 1 is faster."""
    ci: tuple[float, float] | None


class Trial(Model):
    """One candidate of one round."""

    name: str
    sha256: str
    family: str | None
    settings: dict[str, Any]
    verdict: Verdict
    passed: bool
    """Whether the gate let it through."""
    ratio: float | None
    """Over the incumbent of its round; below 1 is faster."""
    ci: tuple[float, float] | None = None
    """Of the ratio; null where an older version did not keep it."""
    technique: str = ""
    attribution: Attribution | None = None
    effects: tuple[Effect, ...] = ()
    """By regime; empty where it was not timed."""

    @property
    def is_rejected(self) -> bool:
        """Whether it was the candidate's fault: wrong, or slower at the gate."""
        return not self.passed and self.verdict not in (Verdict.INFRA, Verdict.INVALID)

    @property
    def outcome(self) -> str:
        """What came of it, for a sentence about it."""
        if self.verdict is not Verdict.PASS:
            return f"ended as {self.verdict}"
        if self.ratio is None:
            return "was not timed"
        return f"took {ratio_text(self.ratio, self.ci)} of its incumbent's time"


class RoundMemory(Model):
    """What is remembered of one round."""

    run: str
    round: int
    direction: str
    bottleneck: str
    regime: str
    incumbent: str
    """SHA-256 of what the candidates had to beat."""
    label: Label
    code: str
    ratio: float | None
    """Of the sweep, else the best of the gate."""
    promoted: bool
    """Whether the incumbent moved: by the round, or by ``kopt promote`` afterwards."""
    swept: str | None
    """SHA-256 of the candidate that had a full sweep."""
    trials: tuple[Trial, ...]
    refused: tuple[str, ...] = ()
    """SHA-256 of what was not measured, since one like it was rejected before."""
    ci: tuple[float, float] | None = None
    """Of the ratio."""
    after: str = ""
    """SHA-256 of the incumbent after the round."""
    latencies_us: dict[str, float] = {}
    """Medians of the incumbent after the round, by workload; empty without a sweep."""

    @property
    def succeeded(self) -> bool:
        """Whether it found what may be promoted, also where a person has yet to do it."""
        return self.promoted or self.label in ("promote", "promote-dispatch")

    @property
    def is_joint(self) -> bool:
        """Whether what was swept had changed more than the levers of the direction."""
        return any(t.sha256 == self.swept and t.attribution == "joint" for t in self.trials)

    @property
    def gain(self) -> float:
        """Share of the time that the round won for the incumbent; 0 where it did not move."""
        return max(0.0, 1 - self.ratio) if self.promoted and self.ratio is not None else 0.0


class Memory(Model):
    """All rounds, oldest first."""

    rounds: tuple[RoundMemory, ...] = ()
    moves: tuple[int, ...] = ()
    """How many rounds there were whenever ``kopt promote`` moved the incumbent."""
    refused: tuple[str, ...] = ()
    """SHA-256 of what the round that is under way has refused."""

    def learn(self, run: str, result: RoundResult) -> Memory:
        """This memory and one more round."""
        return Memory(rounds=(*self.rounds, _remember(run, result)), moves=self.moves)

    def promoted(self, sha256: str) -> Memory:
        """This memory once ``kopt promote`` has made a candidate the incumbent.

        The last round that swept the candidate gets the credit.
        """
        rounds = list(self.rounds)
        swept = [index for index, past in enumerate(rounds) if past.swept == sha256]
        for index in swept[-1:]:
            rounds[index] = rounds[index].model_copy(update={"promoted": True})
        return Memory(rounds=tuple(rounds), moves=(*self.moves, len(rounds)))

    def measured(self) -> frozenset[str]:
        """SHA-256 of all that needs no measuring.

        What was gated with a verdict of its own, was timed as incumbent, or was refused.
        """
        gated = {
            trial.sha256
            for past in self.rounds
            for trial in past.trials
            if trial.verdict not in (Verdict.INFRA, Verdict.INVALID)
        }
        timed = {
            past.incumbent
            for past in self.rounds
            if any(trial.ratio is not None for trial in past.trials)
        }
        refused = {sha256 for past in self.rounds for sha256 in past.refused}
        return frozenset(gated | timed | refused | set(self.refused))

    def refusing(self, sha256s: Iterable[str]) -> Memory:
        """This memory, while a round has refused these."""
        return self.model_copy(update={"refused": (*self.refused, *sha256s)})

    def along(self, direction: str) -> tuple[RoundMemory, ...]:
        """Rounds that went in one direction and had something to measure."""
        return tuple(r for r in self.rounds if r.direction == direction and r.trials)

    def pending(self, incumbent: str, direction: str | None = None) -> tuple[Trial, ...]:
        """Candidates that were clearly faster at the gate and never had a fair sweep.

        Others of a round whose best was swept, and those whose sweep could not count because
        of how it was asked for (few workloads, a public seed). Fastest first.

        Args:
            incumbent: SHA-256 of what they had to beat.
            direction: In which they were proposed; None: in any.
        """
        against = [past for past in self.rounds if past.incumbent == incumbent]
        swept = [past.swept for past in against]
        settled = {past.swept for past in against if past.code not in _NOT_THE_CANDIDATES_FAULT}
        settled |= {sha256 for sha256 in swept if swept.count(sha256) >= MOST_SWEEPS}
        found = {
            trial.sha256: trial
            for past in against
            if direction in (None, past.direction)
            for trial in past.trials
            if trial.passed and trial.ratio is not None and trial.ratio < CLEARLY_FASTER
        }
        waiting = [trial for sha256, trial in found.items() if sha256 not in settled]
        return tuple(sorted(waiting, key=lambda trial: (trial.ratio or 0.0, trial.sha256)))

    def latencies_us(self, incumbent: str) -> dict[str, float]:
        """What the last sweep has measured of an incumbent, by workload; empty if none has.

        Args:
            incumbent: SHA-256.
        """
        for past in reversed(self.rounds):
            if past.latencies_us and past.after == incumbent:
                return past.latencies_us
        return {}

    def since_promotion(self) -> tuple[RoundMemory, ...]:
        """Rounds since the incumbent last moved."""
        moved = [index + 1 for index, past in enumerate(self.rounds) if past.promoted]
        return self.rounds[max((*moved, *self.moves), default=0) :]


def _remember(run: str, result: RoundResult) -> RoundMemory:
    ratios = [c.ratio for c in result.candidates if c.passed and c.ratio is not None]
    ratio = min(ratios, default=None)
    ci = next((c.ci for c in result.candidates if c.ratio == ratio and ratio is not None), None)
    if result.sweep is not None and result.sweep.comparison is not None:
        ratio, ci = result.sweep.comparison.ratio, result.sweep.comparison.ci
    regimes = {signature.uuid: signature.regime for signature in result.state.regimes}
    return RoundMemory(
        run=run,
        round=result.round,
        direction=result.direction.id,
        bottleneck=result.state.focus.bottleneck,
        regime=result.state.focus.regime,
        incumbent=result.incumbent_before.sha256,
        label=result.decision.label,
        code=result.decision.code,
        ratio=ratio,
        promoted=result.incumbent.sha256 != result.incumbent_before.sha256,
        swept=None if result.best is None else result.best.sha256,
        refused=tuple(each.sha256 for each in result.refused),
        ci=ci,
        after=result.incumbent.sha256,
        latencies_us=_latencies_us(result),
        trials=tuple(
            Trial(
                name=c.name,
                sha256=c.sha256,
                family=c.family,
                settings=c.settings,
                verdict=c.verdict,
                passed=c.passed,
                ratio=c.ratio,
                ci=c.ci,
                technique=c.technique,
                attribution=c.attribution,
                effects=_effects(c, regimes),
            )
            for c in result.candidates
        ),
    )


def _latencies_us(result: RoundResult) -> dict[str, float]:
    """Of whichever side of the sweep the incumbent now is."""
    comparison = None if result.sweep is None else result.sweep.comparison
    if comparison is None or result.sweep is None or not result.sweep.complete:
        return {}
    moved = result.incumbent.sha256 != result.incumbent_before.sha256
    medians = {
        row.uuid: row.b_median_us if moved else row.a_median_us for row in comparison.workloads
    }
    return {uuid: us for uuid, us in medians.items() if us is not None}


def _effects(candidate: Candidate, regimes: Mapping[str, str]) -> tuple[Effect, ...]:
    """The gate times one workload of each regime, so each of them is an effect."""
    comparison = candidate.gate["comparison"]
    rows = () if comparison is None else comparison.get("workloads", ())
    return tuple(
        Effect(regime=regimes[row["uuid"]], ratio=row["ratio"], ci=row["ci"])
        for row in rows
        if row["uuid"] in regimes
    )


def gather(archive: Archive, definition: str, target: str) -> Memory:
    """The memory of all closed rounds and promotions; unreadable runs are left out."""
    memory = Memory()
    for run in archive.runs():
        try:
            records = read_journal(run.journal_path)
            results, outcome = closed_rounds(records), promote_outcome(records)
        except InvalidInputError:
            # A damaged journal is named by kopt history; it must not stop other runs.
            continue
        for result in results:
            if (result.definition, result.target) == (definition, target):
                memory = memory.learn(run.id, result)
        if outcome is None or not outcome.applied:
            continue
        if (outcome.definition, outcome.target) == (definition, target):
            memory = memory.promoted(outcome.candidate.sha256)
    return memory


def closed_rounds(records: Iterable[JournalRecord]) -> tuple[RoundResult, ...]:
    """The closed rounds of a journal, in order.

    Raises:
        InvalidInputError: If one was written by a version that recorded something else.
    """
    found = [record for record in records if _RESULT.fullmatch(record.key)]
    return tuple(parse_round(record.value) for record in found)


def parse_round(value: dict[str, Any]) -> RoundResult:
    """A closed round out of its record.

    Raises:
        InvalidInputError: If it was written by a version that recorded something else.
    """
    try:
        return RoundResult.model_validate(value)
    except ValidationError as error:
        raise _unreadable("a closed round", error) from error


def promote_outcome(records: Iterable[JournalRecord]) -> PromoteOutcome | None:
    """What ``kopt promote`` came to; None where it did not end, and in other runs.

    Raises:
        InvalidInputError: If it was written by a version that recorded something else.
    """
    for record in records:
        if record.key == PROMOTE_KEY:
            return parse_outcome(record.value)
    return None


def parse_outcome(value: dict[str, Any]) -> PromoteOutcome:
    """What ``kopt promote`` came to, out of its record.

    Raises:
        InvalidInputError: If it was written by a version that recorded something else.
    """
    try:
        return PromoteOutcome.model_validate(value)
    except ValidationError as error:
        raise _unreadable("a promotion", error) from error


def _unreadable(what: str, error: ValidationError) -> InvalidInputError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return InvalidInputError(
        f"{what} cannot be read: {field}: {first['msg']}",
        hint="read it with the version of kopt that wrote it",
    )
