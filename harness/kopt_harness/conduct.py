"""What a call says of the candidate beside its outputs: tampering, and what a person must see.

Evidence of tampering ends in ``reject``; what an honest solution might do as well, though
seldom for a good reason, is a flag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kopt_harness.schema import Flag, Reason
from kopt_harness.worker.claims import CallClaim, Conduct

__all__ = [
    "PERSISTENT",
    "conduct_flags",
    "early_activity",
    "late_activity",
    "tampering",
    "weighed",
]

LATE_NS = 500_000
"""Processor time after a call that may be the kernel's bookkeeping. The judge looks for some
milliseconds, in which a thread that never rests has to exceed it."""
LATE_SHARE = 0.25
"""Of the time that the judge took to look."""

EARLY_NS = 20_000_000
"""Processor time before a call that reading the request and binding arguments may take where
caches are cold and the machine is busy."""
EARLY_FACTOR = 2.0
"""Of the processor time of a flush, which other work on a machine may stretch."""

PERSISTENT = {"early-activity": 1 / 2, "late-activity": 1 / 3}
"""Flags that one call of a busy machine may raise: more than this share of the calls of a workload
must. A thread that never rests is not running in every look: processors are shared."""


def tampering(claim: Conduct) -> Reason | None:
    """Why a call or a load is not scored; None where nothing was found."""
    if claim.touched:
        detail = f"replaced {', '.join(claim.touched)}"
        return Reason(code="patched-function", detail=detail)
    if claim.hooks:
        detail = f"has code run outside its calls: {', '.join(claim.hooks)}"
        return Reason(code="interpreter-hook", detail=detail)
    if claim.outreach:
        detail = f"tried to get help from outside: {', '.join(claim.outreach)}"
        return Reason(code="outside-help", detail=detail)
    return _in_call(claim) if isinstance(claim, CallClaim) else None


def _in_call(claim: CallClaim) -> Reason | None:
    """What the records of a call and its outputs give away."""
    if claim.late_writes:
        detail = f"wrote to {', '.join(claim.late_writes)} after the call had returned"
        return Reason(code="late-write", detail=detail)
    if claim.details.tampered:
        return Reason(code="timer-tampered", detail=claim.details.tampered)
    if claim.details.unowned:
        detail = f"ran outside the call: {', '.join(claim.details.unowned)}"
        return Reason(code="unowned-device-activity", detail=detail)
    if claim.lazy_output:
        return Reason(code="lazy-output", detail=claim.bad_output or "an output has code")
    return None


def conduct_flags(claim: Conduct) -> list[Flag]:
    """What bars a promotion until a person has looked."""
    flags = []
    if claim.changed_state:
        detail = f"changed for the whole process: {'; '.join(claim.changed_state)}"
        flags.append(Flag(code="global-state", detail=detail))
    if isinstance(claim, CallClaim):
        flags += _timing_flags(claim)
    if claim.libraries:
        detail = f"calls {', '.join(claim.libraries)}, which ships whole operators"
        flags.append(Flag(code="library-call", detail=detail))
    return flags


def _timing_flags(claim: CallClaim) -> list[Flag]:
    """What a timer says of its own sample."""
    flags = []
    if claim.details.compiled:
        detail = f"{claim.details.compiled} kernels were compiled in a timed call"
        flags.append(Flag(code="compiled-in-call", detail=detail))
    if claim.ns is not None and claim.details.idle_ns is not None:
        idle_us, seen_us = claim.details.idle_ns / 1e3, claim.ns / 1e3
        detail = f"events saw {seen_us:.1f} us, the device was busy for {idle_us:.1f}"
        flags.append(Flag(code="timer-disagrees", detail=detail))
    return flags


def early_activity(used_ns: int, flush_ns: int) -> list[Flag]:
    """A flag where more was done between refill and call than a flush of caches takes.

    Args:
        used_ns: processor time of the candidate's threads and children in that time.
        flush_ns: of a flush alone.
    """
    if used_ns <= EARLY_NS + EARLY_FACTOR * flush_ns:
        return []
    detail = (
        f"{used_ns / 1e6:.1f} ms of processor time before it, a flush takes {flush_ns / 1e6:.1f}"
    )
    return [Flag(code="early-activity", detail=f"a timed call came after {detail}")]


def late_activity(used_ns: int, interval_ns: int) -> list[Flag]:
    """A flag where the candidate's threads or children ran on while the judge looked."""
    if used_ns <= max(LATE_NS, LATE_SHARE * interval_ns):
        return []
    detail = f"used {used_ns / 1e6:.1f} ms of processor time in {interval_ns / 1e6:.1f} ms after it"
    return [Flag(code="late-activity", detail=f"a call returned, and {detail}")]


def weighed(raised: Sequence[Flag], calls: int) -> tuple[Flag, ...]:
    """One flag a code; those that noise can raise only where most of the calls did."""
    counts = Counter(flag.code for flag in raised)
    return tuple(_first(f for f in raised if _counts(f, counts, calls)).values())


def _counts(flag: Flag, counts: Counter[str], calls: int) -> bool:
    return counts[flag.code] > PERSISTENT.get(flag.code, 0) * calls


def _first(flags: Iterable[Flag]) -> dict[str, Flag]:
    found: dict[str, Flag] = {}
    for flag in flags:
        found.setdefault(flag.code, flag)
    return found
