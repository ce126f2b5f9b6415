"""Timed calls of warm solutions on one workload: slots, pointer moves, cross-checks.

Every timed call is a checked call: inputs are refilled from a set chosen at random,
outputs are poisoned, and what the call leaves is compared (large outputs by a random
sample of rows). One set in each visit is one that was never used before.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from kopt_harness.conditions import read_conditions
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import CacheState, Flag, Reason, Timer, Timing, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

__all__ = ["TimedCalls"]

WALL_SLACK_NS = 2_000_000
"""How far the orchestrator's clock may exceed a CPU claim: two messages, a scheduler slice."""
FLOOR_TOLERANCE = 0.85
"""A time below this share of compulsory bytes over attainable bandwidth is not believed."""


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
            outcome = self._session.call(sha256, number, phase="bench", timed=True, full=False)
            assert outcome.ns is not None
            if outcome.details.get("launches") == 0:
                reason = Reason(
                    code="no-device-activity",
                    detail=f"workload {self._workload.uuid} {self._workload.axes}: right outputs, "
                    "but nothing ran on the device during a timed call",
                )
                raise CandidateFailedError(Verdict.REJECT, "bench", reason)
            samples.append(outcome.ns)
            self._claims_ns.setdefault(sha256, []).append(outcome.ns)
            self._walls_ns.setdefault(sha256, []).append(outcome.wall_ns)
            if "launches" in outcome.details:
                self._launches.setdefault(sha256, set()).add(outcome.details["launches"])
                self._kernels[sha256] = outcome.details["kernels"]
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

    def moved_pointers(self, sha256: str) -> None:
        """One checked call with every tensor moved, one with a random part of them moved.

        Raises:
            CandidateFailedError: the solution has kept addresses of earlier calls.
        """
        first = next(iter(self._session.generators))
        pooled = self._session.sets(first, self._setting.options.pool)
        for some in (False, True):
            self._session.call(
                sha256,
                self._session.choose(pooled, 1)[0],
                phase="bench",
                timed=False,
                full=True,
                shifts=self._session.random_shifts(some=some),
            )

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
        found = [self._too_fast(sha256), self._below_floor(sha256)]
        return tuple(flag for flag in found if flag is not None)

    def _too_fast(self, sha256: str) -> Flag | None:
        """On a CPU the claim and the orchestrator's clock see the same call.

        The lower quartile of the gaps counts: on a busy machine most calls of an honest
        solution wait for a core after they have ended, but not all of them.
        """
        if self._setting.timer != "cpu" or sha256 not in self._claims_ns:
            return None
        pairs = zip(self._walls_ns[sha256], self._claims_ns[sha256], strict=True)
        ordered = sorted(pairs, key=lambda pair: pair[0] - pair[1])
        wall, claim = ordered[len(ordered) // 4]
        if wall - claim <= max(WALL_SLACK_NS, 0.5 * wall):
            return None
        detail = f"the candidate claims {claim / 1e3:.1f} us, the wall clock says {wall / 1e3:.1f}"
        return Flag(code="timer-disagrees", detail=detail)

    def _below_floor(self, sha256: str) -> Flag | None:
        bandwidth = self._setting.target.copy_gbps
        if bandwidth is None or sha256 not in self._claims_ns:
            return None
        nbytes = self._setting.catalog.cost(self._session.definition, self._workload.axes).bytes
        floor_ns = nbytes / bandwidth.value
        claim_ns = median(self._claims_ns[sha256])
        if claim_ns >= FLOOR_TOLERANCE * floor_ns:
            return None
        detail = f"{claim_ns / 1e3:.2f} us, but moving the bytes takes {floor_ns / 1e3:.2f} us"
        return Flag(code="below-floor", detail=detail)
