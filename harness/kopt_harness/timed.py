"""Timed calls of warm solutions on one workload: slots, pointer moves, cross-checks.

Every timed call is a checked call: inputs are refilled from a set chosen at random,
outputs are poisoned, and what the call leaves is compared (large outputs by a random
sample of rows). One set in each visit is one that was never used before.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from kopt_harness import crosscheck
from kopt_harness.conditions import read_conditions
from kopt_harness.conduct import weighed
from kopt_harness.outcome import CallOutcome, CandidateFailedError
from kopt_harness.schema import CacheState, Flag, Reason, Timer, Timing, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

__all__ = ["TimedCalls"]

MOVES_S = 2.0
"""Wall time after which no further tensor is moved alone."""
FRESH_CALLS = 4
"""Calls on new contents, or at new addresses, that must all be slow, beside others that are not,
before it is held against a solution."""
MAX_NOISE_NS = 5_000_000
"""At most so much: a solution can make a machine busy as well."""
NOISE_FACTOR = 4
"""Exchanges with the judge that the clock around a call may be longer on a busy machine."""
COMPILE_RETRIES = 2
"""Calls that are taken once more because something was compiled in them."""


class TimedCalls:
    """Takes samples on the session's current workload."""

    def __init__(self, setting: Setting, session: Session, workload: Workload) -> None:
        self._setting = setting
        self._session = session
        self._workload = workload
        self._claims_ns: dict[str, list[int]] = {}
        self._walls_ns: dict[str, list[int]] = {}
        self._launches: dict[str, set[int]] = {}
        self._kernels: dict[str, list[Any]] = {}
        self._raised: dict[str, list[Flag]] = {}
        self._known_ns: dict[str, list[int]] = {}
        self._fresh_ns: dict[str, list[int]] = {}
        self._again_ns: dict[str, list[int]] = {}
        self._moved_ns: dict[str, list[int]] = {}
        self._moved_sets: dict[str, list[dict[str, int]]] = {}
        self._timed_sets: dict[str, list[dict[str, int]]] = {}
        self._batches: dict[str, list[crosscheck.Batch]] = {}

    def slot(self, sha256: str, calls: int, *, numbers: list[int] | None = None) -> list[int]:
        """Samples of consecutive calls of one solution, in nanoseconds.

        Args:
            sha256: an open solution.
            calls: how many.
            numbers: input sets to use; drawn from the pool, with one fresh, by default.

        Raises:
            CandidateFailedError: a timed call was wrong.
        """
        chosen = numbers or self.sets(calls)
        samples = []
        for number in chosen:
            is_fresh = self._session.is_new_to(sha256, number)
            outcome = self._timed_call(sha256, number)
            assert outcome.ns is not None
            samples.append(outcome.ns)
            (self._fresh_ns if is_fresh else self._known_ns).setdefault(sha256, []).append(
                outcome.ns
            )
            self._raised.setdefault(sha256, []).extend(outcome.flags)
            self._claims_ns.setdefault(sha256, []).append(outcome.ns)
            allowed_ns = min(NOISE_FACTOR * outcome.noise_ns, MAX_NOISE_NS)
            quiet_ns = max(0, outcome.wall_ns - allowed_ns)
            self._walls_ns.setdefault(sha256, []).append(quiet_ns)
            if "launches" in outcome.details:
                self._launches.setdefault(sha256, set()).add(outcome.details["launches"])
                self._kernels[sha256] = outcome.details["kernels"]
                self._timed_sets.setdefault(sha256, []).append(_counts(outcome.details))
        return samples

    def sets(self, calls: int) -> list[int]:
        """Sets for ``calls`` calls, in random order out of the pool.

        In the first slots of a visit the last one was never used before.
        """
        first = next(iter(self._session.generators))
        pooled = self._session.sets(first, self._setting.options.pool)
        unused = self._session.unused_set(first)
        if unused is None:
            return self._session.choose(pooled, calls)
        return [*self._session.choose(pooled, calls - 1), unused]

    def moved_pointers(self, sha256: str, *, singles: int | None = None) -> None:
        """Checked calls with moved tensors: all, a random part, and then each of them alone.

        A solution that keeps addresses of earlier calls and recognises a call by some of its
        tensors is wrong as soon as another one moves. Moves of single tensors end when they
        have taken ``MOVES_S``, those that move first being chosen at random.

        Args:
            sha256: an open solution.
            singles: how many tensors move alone; None: all of them.

        Raises:
            CandidateFailedError: the solution has kept addresses of earlier calls.
        """
        deadline = time.monotonic() + MOVES_S
        shifts = [self._session.random_shifts(some=some) for some in (False, True)]
        alone = self._session.single_shifts()[:singles]
        for position, moved in enumerate((*shifts, *alone)):
            if position >= len(shifts) and time.monotonic() > deadline:
                break
            self._moved_call(sha256, moved)
        tries = 0
        while self._pointer_bound(sha256) and tries < FRESH_CALLS:
            tries += 1
            self._known_call(sha256)
            self._moved_call(sha256, self._session.random_shifts(some=False))

    def back_to_back(self, sha256: str, *, even_simulated: bool = False) -> None:
        """Calls without a refill or a wait between them, for the orchestrator's own clock.

        What the last one leaves is compared. A batch that contradicts the claims is taken again.

        Args:
            sha256: an open solution that has timed samples.
            even_simulated: also where kernels are Python functions, which take long.

        Raises:
            CandidateFailedError: a call was wrong.
        """
        if self._setting.target.kind == "simulated" and not even_simulated:
            return
        if self._session.definition.kopt.mutable_inputs:
            return  # the second call would work on what the first one has left
        claims = self._claims_ns.get(sha256)
        launches = max(self._launches.get(sha256, ()), default=1)
        if not claims:
            return
        wall_ns = min(self._walls_ns[sha256])
        calls = crosscheck.batch_calls(median(claims), wall_ns, launches)
        first = next(iter(self._session.generators))
        pooled = self._session.sets(first, self._setting.options.pool)
        for _ in range(crosscheck.BATCH_TRIES if calls else 0):
            number = self._session.choose(pooled, 1)[0]
            outcome = self._session.call(
                sha256, number, phase="bench", timed=False, full=False, calls=calls
            )
            host_ns = outcome.details.get("host_ns", 0)
            batch = crosscheck.Batch(calls, outcome.wall_ns, host_ns)
            self._batches.setdefault(sha256, []).append(batch)
            if self._batch_disagrees(sha256) is None:
                break

    def require_possible(self, sha256: str) -> None:
        """Believes no time that clock and bandwidth contradict alike.

        Raises:
            CandidateFailedError: they do.
        """
        wall, floor = self._wall_disagrees(sha256), self._below_floor(sha256)
        reason = crosscheck.impossible_time(wall, floor)
        if reason is not None:
            raise CandidateFailedError(Verdict.REJECT, "bench", reason)

    def _moved_call(self, sha256: str, shifts: dict[str, int]) -> None:
        first = next(iter(self._session.generators))
        pooled = self._session.sets(first, self._setting.options.pool)
        number = self._session.choose(pooled, 1)[0]
        outcome = self._session.call(
            sha256, number, phase="bench", timed=True, full=True, shifts=shifts
        )
        assert outcome.ns is not None
        self._moved_ns.setdefault(sha256, []).append(outcome.ns)
        if "launches" in outcome.details:
            self._moved_sets.setdefault(sha256, []).append(_counts(outcome.details))

    def _timed_call(self, sha256: str, number: int) -> CallOutcome:
        """One call, taken once more where something was compiled in it.

        Raises:
            CandidateFailedError: it was wrong, or nothing ran on the device.
        """
        for attempt in range(COMPILE_RETRIES + 1):
            outcome = self._session.call(sha256, number, phase="bench", timed=True, full=False)
            # Only a timer that reads a device's records can know of it.
            compiled = outcome.details.get("compiled") and self._setting.timer != "cpu"
            if not compiled or attempt == COMPILE_RETRIES:
                break
        if outcome.details.get("launches") == 0:
            reason = Reason(
                code="no-device-activity",
                detail=f"workload {self._workload.uuid} {self._workload.axes}: right outputs, "
                "but nothing ran on the device during a timed call",
            )
            raise CandidateFailedError(Verdict.REJECT, "bench", reason)
        return outcome

    def too_slow(self, wall_ns: int) -> str:
        """Why a workload is not timed, given what one call took; empty where it is."""
        limit_s = self._setting.options.timed_call_s
        if wall_ns <= limit_s * 1e9:
            return ""
        return f"one call takes {wall_ns / 1e9:.1f} s, more than the {limit_s:g} s allowed"

    def untimed(self, reason: str) -> Timing:
        """No samples, and why."""
        return self.timing([]).model_copy(update={"reason": reason})

    def timing(self, samples_ns: list[int]) -> Timing:
        """The samples with everything that must travel with them."""
        timer: Timer = self._setting.timer
        cache: CacheState = self._setting.options.cache
        return Timing(
            timer=timer,
            cache=cache,
            samples_ns=tuple(samples_ns),
            flush_bytes=self._session.flush_bytes,
            conditions=read_conditions(self._setting.target.present().uuid),
        )

    def census(self, sha256: str) -> dict[str, Any]:
        """Device activity of the last timed call; empty where the timer records none."""
        launches = sorted(self._launches.get(sha256, ()))
        return {"launches": launches, "kernels": self._kernels[sha256]} if launches else {}

    def flags(self, sha256: str) -> tuple[Flag, ...]:
        """What bars a promotion although every answer was right."""
        found = [
            self._wall_disagrees(sha256),
            self._batch_disagrees(sha256),
            self._below_floor(sha256),
            self._content_bound(sha256),
            self._pointer_bound(sha256),
            crosscheck.kernels_missing(
                self._moved_sets.get(sha256, []), self._timed_sets.get(sha256, [])
            ),
        ]
        calls = len(self._claims_ns.get(sha256, ()))
        conduct = weighed(self._raised.get(sha256, []), calls)
        return (*conduct, *(flag for flag in found if flag is not None))

    def new_contents(self, sha256: str) -> None:
        """More calls on sets that nobody has used, where one of them was slow.

        Raises:
            CandidateFailedError: a call was wrong.
        """
        first = next(iter(self._session.generators))
        while len(self._fresh_ns.get(sha256, ())) < FRESH_CALLS and self._content_bound(sha256):
            self._known_call(sha256)
            outcome = self._timed_call(sha256, self._session.fresh_set(first))
            assert outcome.ns is not None
            self._fresh_ns[sha256].append(outcome.ns)

    def _known_call(self, sha256: str) -> None:
        """A call as the timed ones were; the machine may be slower by now than it was then."""
        first = next(iter(self._session.generators))
        pooled = self._session.sets(first, self._setting.options.pool)
        outcome = self._timed_call(sha256, self._session.choose(pooled, 1)[0])
        assert outcome.ns is not None
        self._again_ns.setdefault(sha256, []).append(outcome.ns)

    def _content_bound(self, sha256: str) -> Flag | None:
        known = self._again_ns.get(sha256) or self._known_ns.get(sha256, [])
        fresh = self._fresh_ns.get(sha256, [])
        return crosscheck.content_bound(known, fresh, timer=self._setting.timer)

    def _pointer_bound(self, sha256: str) -> Flag | None:
        known = self._again_ns.get(sha256) or self._claims_ns.get(sha256, [])
        moved = self._moved_ns.get(sha256, [])
        return crosscheck.pointer_bound(known, moved, timer=self._setting.timer)

    def _wall_disagrees(self, sha256: str) -> Flag | None:
        claims, walls = self._claims_ns.get(sha256, []), self._walls_ns.get(sha256, [])
        return crosscheck.wall_disagrees(claims, walls, timer=self._setting.timer)

    def _batch_disagrees(self, sha256: str) -> Flag | None:
        claims, batches = self._claims_ns.get(sha256, []), self._batches.get(sha256, [])
        return crosscheck.batch_disagrees(claims, batches, timer=self._setting.timer)

    def _below_floor(self, sha256: str) -> Flag | None:
        bandwidth = self._setting.target.copy_gbps
        if bandwidth is None:
            return None
        nbytes = self._setting.catalog.cost(self._session.definition, self._workload.axes).bytes
        return crosscheck.below_floor(self._claims_ns.get(sha256, []), nbytes, bandwidth.value)


def _counts(details: dict[str, Any]) -> dict[str, int]:
    """Launches by name."""
    return {kernel["name"]: kernel["count"] for kernel in details["kernels"]}
