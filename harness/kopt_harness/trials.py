"""Trials as they are recorded, and what they amount to: verdicts, counts, bounds.

``replay.py`` runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kopt_harness.bench.detection import (
    STATED_RATE,
    detection_probability,
    detection_table,
    failure_rate_upper,
)
from kopt_harness.conduct import weighed
from kopt_harness.schema import (
    Evaluation,
    FirstWrong,
    Flag,
    Model,
    Phase,
    Reason,
    TierResult,
    Verdict,
    Workload,
    WorkloadResult,
)

__all__ = ["Chunk", "Failure", "Part", "Replay", "Trial", "deaths", "results", "telling"]

SHOWN_FAILURES = 200
"""Listed in the document; all are counted."""


class Failure(Model):
    """One trial that went wrong."""

    trial: int
    """Number of the trial, from 0."""
    uuid: str
    generator: str
    verdict: Verdict
    phase: Phase
    repeated: bool
    """Whether the first call was right and the second, on the same inputs, was not."""
    moved: bool
    """Whether pointers had been moved."""
    reason: Reason
    first_wrong: FirstWrong | None = None


class Trial(Model):
    """One input set."""

    number: int
    generator: str
    digest: str | None = None
    """Of the inputs; null where the call did not return or wrote to them."""
    moved: bool = False
    same_bits: bool | None = None
    """Whether a second call left the same bits; null where there was none."""
    failure: Failure | None = None
    flags: tuple[Flag, ...] = ()
    """Raised by its calls; few weigh nothing where noise can raise them."""


class Chunk(Model):
    """Trials of one workload; the unit of the ledger."""

    trials: tuple[Trial, ...]
    tiers: dict[str, TierResult] = {}
    """By tier name: of the first failure, else of the largest error."""
    stopped_by: Reason | None = None
    """Why trials of the chunk are missing, where inputs or machine are at fault."""
    stopped_as: Verdict = Verdict.PASS


class Replay(NamedTuple):
    """An evaluation, and the trials behind it."""

    evaluation: Evaluation
    planned: int
    trials: tuple[tuple[Workload, Trial], ...]

    @property
    def failures(self) -> list[Failure]:
        """Every trial that went wrong, in order."""
        return [trial.failure for _, trial in self.trials if trial.failure is not None]

    @property
    def distinct(self) -> int:
        """Different contents among the inputs of trials that have a digest."""
        return len(_digests(self.trials))

    def document(self) -> dict[str, Any]:
        """The JSON document: that of a check, and what the trials amount to."""
        ran, failures = len(self.trials), self.failures
        repeats = [t.same_bits for _, t in self.trials if t.same_bits is not None]
        return {
            **self.evaluation.document(),
            "trials": ran,
            "planned": self.planned,
            "failures": len(failures),
            "distinct": self.distinct,
            "moved": sum(trial.moved for _, trial in self.trials),
            "repeats": {"calls": len(repeats), "different": repeats.count(False)},
            "detection_rate": STATED_RATE,
            "detection_probability": detection_probability(STATED_RATE, ran),
            "detection": [line._asdict() for line in detection_table(ran)],
            "p_upper_95": failure_rate_upper(ran, len(failures)),
            "generators": _by_generator(self.trials),
            "failed": [f.model_dump(mode="json") for f in failures[:SHOWN_FAILURES]],
        }


class Part(NamedTuple):
    """Planned trials of one workload that are recorded together."""

    workload: Workload
    first: int
    generators: tuple[str, ...]
    """Of each trial, in order."""


def deaths(trials: Iterable[Trial]) -> int:
    """How many ended the process of the solution."""
    fatal = (Verdict.CRASH, Verdict.TIMEOUT)
    return sum(t.failure is not None and t.failure.verdict in fatal for t in trials)


def telling(known: dict[str, TierResult], found: dict[str, TierResult]) -> dict[str, TierResult]:
    """Of each tier the first failure, else the result with the largest error."""
    telling = dict(found) | known
    for name, tier in found.items():
        if _weight(tier) > _weight(telling[name]):
            telling[name] = tier
    return telling


def _weight(tier: TierResult) -> tuple[int, float]:
    rank = {"n/a": 0, "pass": 1, "fail": 2, "invalid": 3}[tier.verdict]
    largest = max((output.max_abs or 0.0 for output in tier.outputs), default=0.0)
    return rank, largest if rank < 2 else 0.0


def results(
    done: Sequence[tuple[Part, Chunk]], *, several_answers: bool = False
) -> list[WorkloadResult]:
    """One result for each workload that has had a trial, or could not have one.

    Args:
        done: chunks of trials, in order.
        several_answers: whether other bits can be as right, by the definition.
    """
    chunks: dict[str, list[tuple[Part, Chunk]]] = {}
    for part, chunk in done:
        chunks.setdefault(part.workload.uuid, []).append((part, chunk))
    return [_result(of_one, several_answers) for of_one in chunks.values()]


def _result(done: Sequence[tuple[Part, Chunk]], several_answers: bool) -> WorkloadResult:
    workload = done[0][0].workload
    trials = [trial for _, chunk in done for trial in chunk.trials]
    failures = [trial.failure for trial in trials if trial.failure is not None]
    stopped = [chunk for _, chunk in done if chunk.stopped_by is not None]
    tiers: dict[str, TierResult] = {}
    for _, chunk in done:
        tiers = telling(tiers, chunk.tiers)
    lost = _repeated_inputs(trials)
    verdicts = [f.verdict for f in failures] + [chunk.stopped_as for chunk in stopped]
    verdicts += [Verdict.INVALID] if lost else []
    verdict = Verdict.combine([*verdicts, Verdict.PASS])
    deciding = [f for f in failures if f.verdict == verdict]
    reasons = [_counted(deciding, len(trials))] if deciding else []
    reasons += [] if deciding else [c.stopped_by for c in stopped if c.stopped_by] + lost
    return WorkloadResult(
        uuid=workload.uuid,
        axes=workload.axes,
        verdict=verdict,
        phase=deciding[0].phase if deciding else "check",
        trials=len(trials),
        reasons=tuple(reasons[:1]),
        flags=_flags(trials, several_answers),
        tiers=tiers,
    )


def _counted(failures: Sequence[Failure], trials: int) -> Reason:
    """The first failure, and how many there were."""
    first = failures[0]
    where = f"{len(failures)} of {trials} trials, first trial {first.trial} ({first.generator}): "
    return Reason(code=first.reason.code, detail=where + first.reason.detail)


def _flags(trials: Sequence[Trial], several_answers: bool) -> tuple[Flag, ...]:
    repeats = [trial for trial in trials if trial.same_bits is not None]
    different = [trial for trial in repeats if not trial.same_bits]
    raised = [flag for trial in trials for flag in trial.flags]
    calls = len(trials) + len(repeats)
    if different and not several_answers:
        detail = (
            f"{len(different)} of {len(repeats)} repeated calls left other bits on the same "
            f"inputs, first in trial {different[0].number} ({different[0].generator})"
        )
        raised.append(Flag(code="non-deterministic", detail=detail))
    return weighed(raised, calls)


def _repeated_inputs(trials: Sequence[Trial]) -> list[Reason]:
    digests = [(t.generator, t.digest) for t in trials if t.digest is not None]
    counts = Counter(digests)
    twice = next((one for one in digests if counts[one] > 1), None)
    if twice is None:
        return []
    detail = f"the generator {twice[0]!r} gave the same inputs more than once"
    return [Reason(code="repeated-inputs", detail=detail)]


def _digests(trials: Iterable[tuple[Workload, Trial]]) -> set[tuple[str, str]]:
    return {(w.uuid, trial.digest) for w, trial in trials if trial.digest is not None}


def _by_generator(trials: Iterable[tuple[Workload, Trial]]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for _, trial in trials:
        row = counts.setdefault(trial.generator, {"trials": 0, "failures": 0})
        row["trials"] += 1
        row["failures"] += trial.failure is not None
    return counts
