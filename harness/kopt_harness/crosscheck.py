"""Holds claimed times against what a solution's process cannot change: pure logic.

A claim is doubted by the orchestrator's clock, by the time that moving the bytes takes, by
the calls with moved pointers, and by the launches of calls that were not timed. One witness
makes a flag; where clock and bytes agree that a time is impossible, it is tampering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from kopt_harness.bench.timers.census import lacking
from kopt_harness.schema import Flag, Reason

__all__ = [
    "FLOOR_TOLERANCE",
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
