"""Holds claimed times against what a solution's process cannot change: pure logic.

A claim is doubted by the orchestrator's clock, around each call and around many of them back to
back, by the time that moving the bytes takes, by the calls with moved pointers, and by the
launches of calls that were not timed. One witness
makes a flag; where clock and bytes agree that a time is impossible, it is tampering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from kopt_harness.bench.timers.census import lacking
from kopt_harness.schema import Flag, Reason

__all__ = [
    "BATCH_TRIES",
    "FLOOR_TOLERANCE",
    "Batch",
    "batch_calls",
    "batch_disagrees",
    "below_floor",
    "content_bound",
    "impossible_time",
    "kernels_missing",
    "pointer_bound",
    "wall_disagrees",
]

WALL_SLACK_NS = 2_000_000
"""How far the orchestrator's clock may exceed a CPU claim: two messages, a scheduler slice."""
DEVICE_SLACK_NS = 50_000_000
"""The same where the timer also waits for the device and reads its records."""
FLOOR_TOLERANCE = 0.85
"""A time below this share of compulsory bytes over attainable bandwidth is not believed."""
POINTER_FACTOR = 1.5
POINTER_SLACK_NS = 20_000
"""Beside the factor: jitter of short calls."""
POINTER_SLACK_CPU_NS = 1_000_000
"""Wall time of a busy machine."""
BATCH_TRIES = 3
"""Batches of which the quickest counts: a busy machine delays all calls, but not every time."""
BATCH_NS = 20_000_000
"""What a batch should take by the claims."""
MAX_BATCH_CALLS = 1000
MAX_BATCH_LAUNCHES = 500
"""Beyond, launching would wait for a full queue, and the recorder of a device hand over its
records while the batch runs."""
LONG_CALL_NS = 500_000_000
"""Calls that take longer than this are not repeated for a batch."""
BATCH_FIXED_NS = 1_500_000
"""Once a batch: messages, binding tensors, fingerprints, the last wait."""
HOST_TRUST_NS = 1_000_000
"""So much host time a call is believed at most, whatever a solution claims to need."""
HOST_SLACK_NS = 20_000
"""The last wait, and what is between two launches."""
BATCH_SHARE = 0.25
"""Of the claim; on a CPU of the measured time twice as much, as for single calls."""
BATCH_SLACK_CPU_NS = 300_000
BATCH_SLACK_SIMULATED_NS = 10_000_000
"""Kernels there are Python functions, whose time nobody claims."""
MAX_BATCH_NS = 2_000_000_000
"""What a batch may take by the clock that was around single calls."""


class Batch(NamedTuple):
    """Calls without anything between them, by the orchestrator's clock."""

    calls: int
    wall_ns: int
    host_ns: int = 0
    """Until the last call had returned, as the candidate tells it."""

    @property
    def mean_ns(self) -> float:
        """Of one call: no less than it keeps a warm device busy."""
        return max(0.0, self.wall_ns - BATCH_FIXED_NS) / self.calls


def batch_calls(claim_ns: float, wall_ns: float, launches: int) -> int:
    """How many calls make a batch that is long against what its clock cannot see; 0 for none.

    Args:
        claim_ns: of a call.
        wall_ns: of a call, as the orchestrator saw it.
        launches: of a call.
    """
    if claim_ns > LONG_CALL_NS:
        return 0
    most = min(
        MAX_BATCH_CALLS,
        MAX_BATCH_LAUNCHES // max(1, launches),
        MAX_BATCH_NS // max(1, int(wall_ns)),
    )
    return max(2, min(most, -(-BATCH_NS // max(1, int(claim_ns)))))


def batch_disagrees(
    claims_ns: Sequence[int], batches: Sequence[Batch], *, timer: str
) -> Flag | None:
    """Whether calls back to back take longer than claims and their host time allow.

    The mean of a batch bounds the time of a warm call from above: the device works while the
    host launches the next one, so that a call takes about the longer of the two, and never more
    than their sum.

    Args:
        claims_ns: of timed calls.
        batches: by the orchestrator's clock; the quickest counts.
        timer: ``cpu`` has no host time beside the claim.
    """
    if not claims_ns or not batches:
        return None
    claim, best = median(claims_ns), min(batches, key=lambda batch: batch.mean_ns)
    mean = best.mean_ns
    if timer == "cpu":
        allowed = max(BATCH_SLACK_CPU_NS, 2 * BATCH_SHARE * mean)
    else:
        host = min(best.host_ns / best.calls, HOST_TRUST_NS)
        slack = BATCH_SLACK_SIMULATED_NS if timer == "simulated" else HOST_SLACK_NS
        allowed = BATCH_SHARE * claim + host + slack
    if mean - claim <= allowed:
        return None
    detail = f"the candidate claims {claim / 1e3:.1f} us; of {best.calls} calls back to back each "
    detail += f"took {mean / 1e3:.1f} us by the wall clock"
    return Flag(code="batch-disagrees", detail=detail)


def wall_disagrees(claims_ns: Sequence[int], walls_ns: Sequence[int], *, timer: str) -> Flag | None:
    """Whether the orchestrator's clock saw calls take far longer than their process claims.

    The lower quartile by the clock is held against the median claim. On a busy machine most
    calls of an honest solution wait for a core as well, but not all of them; and now and then
    the orchestrator is late to start its clock.

    Args:
        claims_ns: of calls.
        walls_ns: of the same calls, by the orchestrator's clock.
        timer: ``cpu`` waits for no device.
    """
    if not claims_ns:
        return None
    wall, claim = sorted(walls_ns)[(len(walls_ns) - 1) // 4], median(claims_ns)
    slack = WALL_SLACK_NS if timer == "cpu" else DEVICE_SLACK_NS
    if wall - claim <= max(slack, 0.5 * wall):
        return None
    claimed, took = f"{claim / 1e3:.1f} us", f"{wall / 1e3:.1f} or more"
    detail = f"the candidate claims {claimed}, by the wall clock three quarters took {took}"
    return Flag(code="timer-disagrees", detail=detail)


def below_floor(claims_ns: Sequence[int], nbytes: float, gbps: float) -> Flag | None:
    """Whether the median is less than the compulsory bytes can be moved in."""
    if not claims_ns:
        return None
    floor_ns, claim_ns = nbytes / gbps, median(claims_ns)
    if claim_ns >= FLOOR_TOLERANCE * floor_ns:
        return None
    detail = f"{claim_ns / 1e3:.2f} us, but moving the bytes takes {floor_ns / 1e3:.2f} us"
    return Flag(code="below-floor", detail=detail)


def impossible_time(wall: Flag | None, floor: Flag | None) -> Reason | None:
    """Two witnesses that know nothing of each other contradict a claim."""
    if wall is None or floor is None:
        return None
    return Reason(code="impossible-time", detail=f"{floor.detail}; {wall.detail}")


def content_bound(known_ns: Sequence[int], fresh_ns: Sequence[int], *, timer: str) -> Flag | None:
    """Whether every call on contents never used before took far longer than the others.

    Contents that were used before are varied, but a solution may have kept what the variation
    leaves. Such a time is not that of a caller who has new inputs.
    """
    if not known_ns or not fresh_ns:
        return None
    known, fresh = median(known_ns), min(fresh_ns)
    slack = POINTER_SLACK_CPU_NS if timer == "cpu" else POINTER_SLACK_NS
    if fresh <= POINTER_FACTOR * known + slack:
        return None
    detail = f"{known / 1e3:.1f} us on varied contents, {fresh / 1e3:.1f} us or more on new ones"
    return Flag(code="content-bound", detail=detail)


def pointer_bound(timed_ns: Sequence[int], moved_ns: Sequence[int], *, timer: str) -> Flag | None:
    """Whether every call at new addresses took far longer than calls at known ones.

    Such a solution is right, and its time is that of a caller who never moves a tensor.
    """
    if not timed_ns or not moved_ns:
        return None
    known, moved = median(timed_ns), min(moved_ns)
    slack = POINTER_SLACK_CPU_NS if timer == "cpu" else POINTER_SLACK_NS
    if moved <= POINTER_FACTOR * known + slack:
        return None
    detail = f"{known / 1e3:.1f} us at known addresses, {moved / 1e3:.1f} us or more at new ones"
    return Flag(code="pointer-bound", detail=detail)


def kernels_missing(
    checked: Sequence[Mapping[str, int]], timed: Sequence[Mapping[str, int]]
) -> Flag | None:
    """Whether timed calls do without most of what other calls launch."""
    missing = lacking(checked, timed)
    if not missing:
        return None
    detail = f"timed calls do without {', '.join(missing[:8])}"
    return Flag(code="kernels-missing", detail=detail)
