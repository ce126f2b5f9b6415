"""Many trials of one solution, each on inputs of its own: what a check of a few calls misses.

A missing barrier that spoils one call in a hundred passes three trials almost always. Replay
spreads hundreds over workloads and over all generators, ordinary and adversarial. Every call
gets inputs that no call before it has seen and poisoned outputs, and is compared as a whole.
Now and then all pointers move, and now and then a call is repeated on the same inputs at the
same places, where outputs that differ in any bit are a flag. Failures are counted, not the
end: how many there are is the result. Trials are recorded in chunks, so that an interrupted
replay continues, with inputs that it has not used yet.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kopt_harness.errors import NotFoundError
from kopt_harness.evaluate import MAX_DEATHS, build, conclude, evaluate, in_force
from kopt_harness.ledger import DictLedger, Ledger
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import (
    BuildResult,
    Definition,
    Flag,
    Solution,
    TierResult,
    Verdict,
    Workload,
)
from kopt_harness.setting import Setting
from kopt_harness.trials import Chunk, Failure, Part, Replay, Trial, deaths, results, telling
from kopt_harness.watched import WatchedSession

__all__ = ["Progress", "plan", "replay"]

CHUNK_TRIALS = 16
"""Trials that are recorded together."""
CHUNK_BYTES = 256 << 20
"""Input sets of a chunk are held at the same time."""
ONE_IN = 8
"""Of so many trials of a chunk one is repeated, at least one in each chunk."""
_NO_TRIAL = (Verdict.INVALID, Verdict.INFRA)
"""Verdicts on inputs or machine: such a call says nothing of the solution."""

Progress = Callable[[int, int], None]
"""Called with completed trials and failures so far."""


def plan(
    definition: Definition,
    workloads: Sequence[Workload],
    generators: Sequence[str],
    trials: int,
) -> list[Part]:
    """Spreads trials evenly over workloads, and over generators in turn.

    Args:
        definition: whose input sets decide how many fit a chunk.
        workloads: the first ones get one trial more where the number does not divide.
        generators: names, in turn over all trials.
        trials: how many.
    """
    parts: list[Part] = []
    number = 0
    for position, workload in enumerate(workloads):
        left = trials // len(workloads) + (position < trials % len(workloads))
        size = _chunk_size(definition, workload)
        while left:
            count = min(size, left)
            names = tuple(generators[n % len(generators)] for n in range(number, number + count))
            parts.append(Part(workload, number, names))
            number, left = number + count, left - count
    return parts


def replay(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    trials: int,
    generators: Sequence[str] | None = None,
    session: WatchedSession | None = None,
    progress: Progress | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Replay:
    """Runs the trials that the ledger does not have yet.

    Args:
        setting: catalog, target and options.
        solution: what is tried.
        workloads: of the solution's definition, at least one.
        ledger: completed chunks are taken from it and added to it.
        trials: distinct input sets over all workloads.
        generators: names; all of the definition by default.
        session: a warm one to use; one is opened by default.
        progress: told after each chunk.
        is_over: asked before each chunk; then the rest is left for another time.

    Raises:
        NotFoundError: the definition has no such generator.
        InfraError: the machine failed.
        UnavailableError: a toolchain or device is missing.
    """
    built = build(setting, solution)
    if not built.ok:
        return Replay(evaluate(setting, solution, (), DictLedger()), trials, ())
    definition = setting.catalog.resolve(solution.definition)
    own = session is None
    session = session or WatchedSession(setting, definition, workloads)
    try:
        session.bind(workloads[0])
        names = _known(session, definition, generators)
        parts = plan(definition, workloads, names, trials)
        scope = _scope(setting, workloads, names, trials)
        runner = _Runner(session, solution, built, ledger, scope)
        done = runner.run(parts, progress or (lambda _ran, _failed: None), is_over)
        isolation = in_force(ledger, solution, session)
        rows = results(done, several_answers=definition.kopt.several_answers)
        evaluation = conclude(setting, solution, rows, isolation=isolation)
        numbered = tuple((part.workload, t) for part, chunk in done for t in chunk.trials)
        return Replay(evaluation, trials, numbered)
    finally:
        if own:
            session.close()


class _Runner:
    """Goes through the parts of a plan."""

    def __init__(
        self,
        session: WatchedSession,
        solution: Solution,
        built: BuildResult,
        ledger: Ledger,
        scope: str,
    ) -> None:
        self._session = session
        self._solution = solution
        self._built = built
        self._ledger = ledger
        self._scope = f"replay/{solution.sha256[:12]}/{scope}"
        self._random = random.SystemRandom()

    def run(
        self, parts: Sequence[Part], progress: Progress, is_over: Callable[[], bool]
    ) -> list[tuple[Part, Chunk]]:
        """All parts, up to the one in which the solution has died too often."""
        done: list[tuple[Part, Chunk]] = []
        ran, failed, died = 0, 0, 0
        for part in parts:
            if died >= MAX_DEATHS or is_over():
                break
            chunk = self._recorded(part, MAX_DEATHS - died)
            done.append((part, chunk))
            died += deaths(chunk.trials)
            ran += len(chunk.trials)
            failed += sum(trial.failure is not None for trial in chunk.trials)
            progress(ran, failed)
        return done

    def _recorded(self, part: Part, lives: int) -> Chunk:
        key = f"{self._scope}/{part.workload.uuid}/{part.first}"
        known = self._ledger.get(key)
        if known is not None:
            return Chunk.model_validate(known)
        chunk = self._chunk(part, lives)
        if chunk.stopped_as != Verdict.INFRA:
            self._ledger.put(key, chunk.model_dump(mode="json"))
        return chunk

    def _chunk(self, part: Part, lives: int) -> Chunk:
        session, count = self._session, len(part.generators)
        # Sets of the chunk before are given up, so that memory does not grow with the trials.
        session.renew()
        session.bind(part.workload)
        again = set(self._random.sample(range(count), -(-count // ONE_IN)))
        still = self._random.randrange(count + 1)
        shifts = session.random_shifts(some=bool(self._random.getrandbits(1)))
        trials: list[Trial] = []
        tiers: dict[str, TierResult] = {}
        for place, generator in enumerate(part.generators):
            moved = shifts if place >= still else None
            attempt = _Attempt(part, part.first + place, generator, moved, place in again)
            try:
                trial, found = self._trial(attempt)
            except CandidateFailedError as error:
                return Chunk(
                    trials=tuple(trials),
                    tiers=tiers or error.tiers,
                    stopped_by=error.reason,
                    stopped_as=error.verdict,
                )
            tiers = telling(tiers, found)
            trials.append(trial)
            if deaths(trials) >= lives:
                break
        return Chunk(trials=tuple(trials), tiers=tiers)

    def _trial(self, attempt: _Attempt) -> tuple[Trial, dict[str, TierResult]]:
        """One input set.

        Raises:
            CandidateFailedError: inputs or machine are at fault, not the solution.
        """
        calls: list[_Call] = []
        number: int | None = None
        for _ in range(2 if attempt.again else 1):
            try:
                self._session.open(self._solution, self._built.path)
                if number is None:
                    number = self._session.fresh_set(attempt.generator)
                self._session.call_again(number)
                calls.append(self._call(number, attempt.shifts))
            except CandidateFailedError as error:
                if error.verdict in _NO_TRIAL:
                    raise
                calls.append(_Call(self._inputs_of(error), None, error.tiers, (), error))
            if calls[-1].error is not None:
                break
        last = calls[-1]
        trial = Trial(
            number=attempt.number,
            generator=attempt.generator,
            digest=calls[0].inputs,
            moved=attempt.shifts is not None,
            same_bits=_same_bits(calls),
            failure=attempt.failure(last.error, repeated=len(calls) > 1) if last.error else None,
            flags=tuple(flag for call in calls for flag in call.flags),
        )
        return trial, last.tiers

    def _call(self, number: int, shifts: dict[str, int] | None) -> _Call:
        session = self._session
        outcome = session.call(
            self._solution.sha256, number, phase="check", timed=False, full=True, shifts=shifts
        )
        inputs, outputs = session.inputs_digest(), session.outputs_digest()
        return _Call(inputs, outputs, outcome.tiers, outcome.flags, None)

    def _inputs_of(self, error: CandidateFailedError) -> str | None:
        """Of a wrong call whose inputs are known to be untouched."""
        return self._session.inputs_digest() if error.tiers else None


class _Attempt(NamedTuple):
    """What a trial is to be."""

    part: Part
    number: int
    generator: str
    shifts: dict[str, int] | None
    again: bool

    def failure(self, error: CandidateFailedError, *, repeated: bool) -> Failure:
        """The failure as it is counted."""
        outputs = [o for tier in error.tiers.values() for o in tier.outputs]
        return Failure(
            trial=self.number,
            uuid=self.part.workload.uuid,
            generator=self.generator,
            verdict=error.verdict,
            phase=error.phase,
            repeated=repeated,
            moved=self.shifts is not None,
            reason=error.reason,
            first_wrong=next((o.first_wrong for o in outputs if o.first_wrong), None),
        )


class _Call(NamedTuple):
    """What came of one call."""

    inputs: str | None
    outputs: str | None
    tiers: dict[str, TierResult]
    flags: tuple[Flag, ...]
    error: CandidateFailedError | None


def _same_bits(calls: Sequence[_Call]) -> bool | None:
    if len(calls) < 2 or calls[1].outputs is None:
        return None
    return calls[0].outputs == calls[1].outputs


def _known(
    session: WatchedSession, definition: Definition, generators: Sequence[str] | None
) -> list[str]:
    unknown = [name for name in generators or () if name not in session.generators]
    if unknown:
        raise NotFoundError(
            f"{definition.kopt.alias} has no generator {unknown[0]!r}",
            hint=f"one of {', '.join(session.generators)}",
        )
    return list(dict.fromkeys(generators or session.generators))


def _chunk_size(definition: Definition, workload: Workload) -> int:
    """How many input sets with their expected outputs are held at the same time."""
    static = definition.kopt.static_inputs
    inputs = (s for s in definition.input_shapes(workload.axes) if s.name not in static)
    outputs = definition.output_shapes(workload.axes)
    nbytes = sum(s.nbytes for s in inputs) + 4 * sum(s.numel for s in outputs)
    return max(1, min(CHUNK_TRIALS, CHUNK_BYTES // max(1, nbytes)))


def _scope(
    setting: Setting, workloads: Sequence[Workload], generators: Sequence[str], trials: int
) -> str:
    """Beginning of the keys: chunks of one plan only stand beside each other."""
    same = [[w.uuid for w in workloads], list(generators), trials, setting.options.seed]
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:12]
