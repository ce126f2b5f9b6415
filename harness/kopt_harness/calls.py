"""One call of a candidate, and what the judge finds in its outputs.

Refill and poison, call, conduct, comparison: each step asks the process that knows, and
whatever it finds against the candidate ends the call as a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kopt_harness import conduct
from kopt_harness.activity import CpuUse, busy_ns, cpu_use, last_processors
from kopt_harness.outcome import CallOutcome, CandidateFailedError
from kopt_harness.schema import Flag, Phase, Reason, TierResult, Verdict, Workload
from kopt_harness.worker.claims import CallClaim, Conduct, read_claim
from kopt_harness.worker.spawn import WorkerFailedError
from kopt_harness.worker.wire import WireError
from kopt_harness.workers import Workers

__all__ = ["Call", "Calls"]

_QUIET_S = 0.001
"""The judge looks at the outputs, waits so long, and looks again."""
PEER_MATCHED = 0.99
"""Share of each output that a library must have right by the contest's rule to be timed."""
_LONG_QUIET_S = 0.3
"""The same once for a solution whose outputs are wrong: they may still be on their way."""


class Call(NamedTuple):
    """What is called how; ``Session.call`` says more."""

    sha256: str
    workload: Workload
    number: int
    """Of the input set."""
    phase: Phase
    timed: bool
    full: bool
    shifts: dict[str, int]
    times: int
    """So many back to back."""
    vary: bool
    """Whether the set was in a call before."""
    timeout_s: float


class _Called(NamedTuple):
    """What came back of a call."""

    claim: CallClaim
    wall_ns: int
    noise_ns: int
    early: tuple[Flag, ...]
    """Of what the solution did before it was called."""


class Calls:
    """Makes the calls of a session."""

    def __init__(self, workers: Workers, *, flushed_by_judge: bool) -> None:
        """Calls nothing yet.

        Args:
            workers: Of the session.
            flushed_by_judge: Whether the judge flushes caches before a timed call.
        """
        self._workers = workers
        self._flushed_by_judge = flushed_by_judge
        self._watched: set[str] = set()
        self._peers: frozenset[str] = frozenset()
        self._deviations: dict[str, Reason] = {}
        self._against_contest: set[str] = set()

    @contextmanager
    def held_to_contest(self, sha256s: frozenset[str]) -> Iterator[None]:
        """Within it these solutions may round as they do.

        What the strict tier has against them is kept and ends no call, and so is what the contest's
        rule has against a call in which nearly every element is right by it.
        """
        before, self._peers = self._peers, sha256s
        try:
            yield
        finally:
            self._peers = before

    def deviation(self, sha256: str) -> Reason | None:
        """The first that the tiers had against a solution that is held to the contest's rule."""
        return self._deviations.get(sha256)

    def make(self, call: Call) -> CallOutcome:
        """Refills, poisons, calls, compares.

        Raises:
            CandidateFailedError: wrong, crashed, timed out, or touched what is not its own.
        """
        before = self._cpu_use(call) if self._knows_flush(call) else {}
        # Contents that were in a call before are never in one again.
        refilled = self._workers.ask_judge(
            "refill", set=call.number, shifts=call.shifts, vary=call.vary, hold=call.timed
        )
        called = self._called(call, refilled["scalars"], before)
        _require_honest(called.claim, call)
        if called.claim.bad_output is not None:
            raise _blamed(Verdict.FAIL, call, "bad-output", called.claim.bad_output)
        conducted = self._conduct(call)
        _require_honest(conducted, call)
        before, start_ns = self._cpu_use(call), time.perf_counter_ns()
        tiers, coarse = self._verified(call)
        interval_ns = time.perf_counter_ns() - start_ns
        late = conduct.late_activity(busy_ns(before, self._cpu_use(call)), interval_ns)
        noticed = (*conduct.conduct_flags(conducted), *conduct.conduct_flags(called.claim))
        return CallOutcome(
            called.claim.ns,
            called.wall_ns,
            called.claim.details.model_dump(exclude_none=True),
            tiers,
            called.noise_ns,
            (*noticed, *coarse, *called.early, *late),
        )

    def _knows_flush(self, call: Call) -> bool:
        """Whether processor time before a call can be told from that of a flush."""
        return call.timed and self._workers.flush_cpu_ns is not None

    def _cpu_use(self, call: Call) -> CpuUse:
        return cpu_use(self._workers.candidate(call.sha256).processes())

    def _called(self, call: Call, scalars: Any, idle: CpuUse) -> _Called:
        early: list[Flag] = []
        noise_ns = 0
        client = self._workers.candidate(call.sha256)
        try:
            client.send(
                "call",
                axes=call.workload.axes,
                shifts=call.shifts,
                scalars=scalars,
                timed=call.timed,
                calls=call.times,
            )
            if call.timed:
                client.answer(timeout_s=call.timeout_s, expect="flushed")
                watched = self._flushed_by_judge or self._knows_flush(call)
                processes = client.processes() if watched else []
                asked_ns = time.perf_counter_ns()
                completed = self._workers.ask_judge(
                    "complete",
                    flush_bytes=self._workers.flush_bytes,
                    processors=last_processors(processes) if self._flushed_by_judge else [],
                )
                noise_ns = time.perf_counter_ns() - asked_ns - completed["flush_ns"]
                if self._workers.flush_cpu_ns is not None:
                    used_ns = busy_ns(idle, cpu_use(processes))
                    early += conduct.early_activity(used_ns, self._workers.flush_cpu_ns)
                if written := completed["early_writes"]:
                    self._workers.discard(call.sha256)  # it waits for a word that will not come
                    detail = f"wrote to {', '.join(written)} before it was called"
                    raise _blamed(Verdict.REJECT, call, "early-write", detail)
            start_ns = time.perf_counter_ns()
            if call.timed:
                client.send("go")
            answer = client.answer(timeout_s=call.timeout_s)
            wall_ns = time.perf_counter_ns() - start_ns
            claim = read_claim(CallClaim, answer)
            if call.timed and not claim.is_time:
                raise WireError(f"a call of {claim.ns!r} ns")
        except (WorkerFailedError, WireError) as error:
            raise self._workers.failed(call.sha256, call.phase, error) from error
        return _Called(claim, wall_ns, noise_ns, tuple(early))

    def _conduct(self, call: Call) -> Conduct:
        """Asked on its own: caches are cold after a call, and looking takes milliseconds."""
        answer = self._workers.ask_candidate(call.sha256, call.phase, "conduct", call.timeout_s)
        try:
            return read_claim(Conduct, answer)
        except WireError as error:
            raise self._workers.failed(call.sha256, call.phase, error) from error

    def _verified(self, call: Call) -> tuple[dict[str, TierResult], list[Flag]]:
        answer = self._workers.ask_judge(
            "verify", set=call.number, full=call.full, quiet_s=_QUIET_S
        )
        failed = any(tier["verdict"] == "fail" for tier in answer["tiers"].values())
        late = answer["late_writes"]
        if failed and not late and call.sha256 not in self._watched:
            self._watched.add(call.sha256)
            late = self._late_writes(call)
        if late:
            detail = f"wrote to {', '.join(late)} after the call had returned"
            raise _blamed(Verdict.REJECT, call, "late-write", detail)
        if answer["red_zones"]:
            names = ", ".join(answer["red_zones"])
            raise _blamed(Verdict.FAIL, call, "out-of-bounds-write", f"wrote outside {names}")
        if answer["inputs_changed"]:
            names = ", ".join(answer["inputs_changed"])
            raise _blamed(Verdict.FAIL, call, "input-modified", f"wrote to the input {names}")
        tiers = {name: TierResult.model_validate(t) for name, t in answer["tiers"].items()}
        for tier in tiers.values():
            if tier.verdict == "fail" and call.sha256 in self._peers and _timed_still(tier):
                self._note_deviation(tier, call)
            elif tier.verdict in ("fail", "invalid"):
                verdict = Verdict(tier.verdict)
                raise CandidateFailedError(verdict, call.phase, _wrong(tier, call), tiers)
        return tiers, [Flag(code="precision-downgrade", detail=text) for text in answer["coarse"]]

    def _note_deviation(self, tier: TierResult, call: Call) -> None:
        """The first, or the first against the contest's rule, which says more."""
        sha = call.sha256
        if tier.tier == "contest" and sha not in self._against_contest:
            self._against_contest.add(sha)
            self._deviations.pop(sha, None)
        self._deviations.setdefault(sha, _wrong(tier, call))

    def _late_writes(self, call: Call) -> list[str]:
        """Wrong outputs that change after all: in the arena, or where they were returned."""
        late = list(self._workers.ask_judge("watch", quiet_s=_LONG_QUIET_S)["late_writes"])
        if not late:
            answer = self._workers.ask_candidate(
                call.sha256, call.phase, "watch", call.timeout_s, quiet_s=0.0
            )
            try:
                late += read_claim(CallClaim, answer).late_writes
            except WireError as error:
                raise self._workers.failed(call.sha256, call.phase, error) from error
        return late


def _timed_still(tier: TierResult) -> bool:
    """Whether a library that failed a tier is timed: not one that computes something else."""
    if tier.tier == "strict":
        return True
    return bool(tier.outputs) and all(o.matched_ratio >= PEER_MATCHED for o in tier.outputs)


def _require_honest(claim: Conduct, call: Call) -> None:
    reason = conduct.tampering(claim)
    if reason is not None:
        raise _blamed(Verdict.REJECT, call, reason.code, reason.detail)


def _wrong(tier: TierResult, call: Call) -> Reason:
    """The first wrong workload, output, element, expected and actual value."""
    where = f"workload {call.workload.uuid} {call.workload.axes}, {tier.tier} tier: "
    cause = tier.reason or Reason(code="wrong-output", detail="an output is wrong")
    return Reason(code=cause.code, detail=where + cause.detail)


def _blamed(verdict: Verdict, call: Call, code: str, detail: str) -> CandidateFailedError:
    where = f"workload {call.workload.uuid} {call.workload.axes}: "
    return CandidateFailedError(verdict, call.phase, Reason(code=code, detail=where + detail))
