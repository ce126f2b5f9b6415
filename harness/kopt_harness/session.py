"""One judge and its candidates, warm over all workloads of a definition on one device.

The orchestrator's side: no torch, no candidate code, no expected outputs. A session turns
calls into outcomes or verdicts, and knows which input set has been in which call; what is
measured when is decided above it, and ``workers`` keeps the processes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from kopt_harness import conduct
from kopt_harness.activity import CpuUse, busy_ns, cpu_use, last_processors
from kopt_harness.layout import Arena
from kopt_harness.outcome import CallOutcome, CandidateFailedError
from kopt_harness.pools import PoolMemory
from kopt_harness.schema import (
    Definition,
    Flag,
    Phase,
    Reason,
    Solution,
    TierResult,
    Verdict,
    Workload,
)
from kopt_harness.setting import Setting
from kopt_harness.worker.claims import CallClaim, Conduct, ProfileClaim, read_claim
from kopt_harness.worker.spawn import Observer, WorkerFailedError
from kopt_harness.worker.wire import WireError
from kopt_harness.workers import Workers

__all__ = ["Session"]

_EXPECTED_ITEM_BYTES = 4
"""Expected outputs are kept in float32."""
_QUIET_S = 0.001
"""The judge looks at the outputs, waits so long, and looks again."""
_LONG_QUIET_S = 0.3
"""The same once for a solution whose outputs are wrong: they may still be on their way."""


class _Called(NamedTuple):
    """What came back of a call."""

    claim: CallClaim
    wall_ns: int
    noise_ns: int
    early: tuple[Flag, ...]
    """Of what the solution did before it was called."""


class Session:
    """Opens workers on first use; close it, or use it as a context manager."""

    def __init__(
        self,
        setting: Setting,
        definition: Definition,
        workloads: Sequence[Workload],
        *,
        seed_salt: int = 0,
        observer: Observer | None = None,
        own_calls: int = 0,
        pool_bytes: int | None = None,
    ) -> None:
        self._setting = setting
        self.definition = definition
        self._arena = Arena.for_workloads(definition, workloads)
        self._workers = Workers(
            setting,
            definition,
            self._arena,
            salt=seed_salt,
            observer=observer,
            own_calls=own_calls,
        )
        self._random = random.Random(setting.options.seed)
        self._workload: Workload | None = None
        self._sets: dict[str, dict[str, list[int]]] = {}
        self._pools = PoolMemory(pool_bytes)
        self._reference_s = 0.0
        self._had_unused = False
        self._drawn = 0
        self._drawn_at: dict[tuple[str, int], int] = {}
        self._loaded_at: dict[str, int] = {}
        self._used: set[tuple[str, int]] = set()
        self._met: set[tuple[str, str, int]] = set()
        self._watched: set[str] = set()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all workers."""
        self._workers.close()

    def kill(self) -> None:
        """Kills all workers from another thread; the one that uses them closes the session."""
        self._workers.kill()

    @property
    def generators(self) -> dict[str, str]:
        """Kind by generator name; known once a judge is open."""
        return self._workers.generators

    @property
    def isolation(self) -> dict[str, Any]:
        """What was in force in judge and candidate."""
        return self._workers.isolation

    @property
    def own_busy_ns(self) -> list[int]:
        """Of the evaluator's own kernels, as the last timer saw them before candidate code."""
        return self._workers.own_busy_ns

    @property
    def flush_bytes(self) -> int:
        """Written before each timed call."""
        return self._workers.flush_bytes

    @property
    def phases_ns(self) -> dict[str, int]:
        """Wall time by phase of all workers so far."""
        return self._workers.phases_ns

    def bind(self, workload: Workload) -> None:
        """Makes ``workload`` the current one; its input sets are drawn as they are needed."""
        self._workers.judge()
        if self._workload != workload:
            for uuid in self._pools.enter(workload.uuid):
                self._forget(uuid)
            self._workers.ask_judge("workload", uuid=workload.uuid, axes=workload.axes)
            self._workload = workload
            self._had_unused = False
            self._reference_s = 0.0

    def sets(
        self, generator: str, count: int, *, reference: bool = True, shelved: int = 0
    ) -> list[int]:
        """The first ``count`` sets of a generator on the current workload.

        Args:
            generator: Its name.
            count: How many.
            reference: Whether expected outputs are computed at once.
            shelved: So many of them may be of an earlier session, where there is a shelf.

        Raises:
            CandidateFailedError: verdict ``invalid``: a kernel that writes zeros would pass.
        """
        assert self._workload is not None
        known = self._sets.setdefault(self._workload.uuid, {}).setdefault(generator, [])
        while len(known) < count:
            place = len(known) if len(known) < shelved and self._may_shelve() else None
            known.append(self._draw(generator, reference=reference, place=place))
        return known[:count]

    def fresh_set(self, generator: str, *, reference: bool = True) -> int:
        """A set that no call has seen."""
        return self._draw(generator, reference=reference, place=None)

    def _draw(self, generator: str, *, reference: bool, place: int | None) -> int:
        assert self._workload is not None
        self._pools.add(self._workload.uuid, self._set_bytes(self._workload))
        answer = self._workers.ask_judge(
            "draw", generator=generator, reference=reference, place=place
        )
        if answer["invalid"]:
            reason = Reason.model_validate(answer["invalid"])
            raise CandidateFailedError(Verdict.INVALID, "check", reason)
        self._reference_s = max(self._reference_s, answer["reference_s"])
        number = int(answer["set"])
        self._drawn += 1
        key = self._workload.uuid, number
        self._drawn_at[key] = 0 if answer["met"] else self._drawn
        # One that was in a call of an earlier session is varied like one that was in this one's.
        (self._used.add if answer["met"] else self._used.discard)(key)
        self._met = {m for m in self._met if m[1:] != key}
        return number

    def _may_shelve(self) -> bool:
        """Whether a candidate is kept from the judge's files by more than good manners."""
        granted = self.isolation.get("candidate", {})
        barriers = ("own_root", "landlock", "other_uid")
        return self._setting.shelf is not None and any(granted.get(b) is True for b in barriers)

    def renew(self) -> None:
        """Forgets every set, so that whoever is called next meets none that was used."""
        for uuid in self._pools.known():
            self._forget(uuid)
        self._workload = None

    def fresh_for(self, sha256: str, generator: str, numbers: Sequence[int]) -> list[int]:
        """The same sets, the last replaced where all were drawn before a solution was loaded."""
        assert self._workload is not None
        loaded = self._loaded_at[sha256]
        if any(self._drawn_at[self._workload.uuid, number] > loaded for number in numbers):
            return list(numbers)
        return [*numbers[:-1], self.fresh_set(generator)]

    def is_new_to(self, sha256: str, number: int) -> bool:
        """Whether a set of the current workload was in no call of a solution."""
        assert self._workload is not None
        return (sha256, self._workload.uuid, number) not in self._met

    def unused_set(self, generator: str) -> int | None:
        """A set that no call has seen, once for each visit of a workload; then None."""
        if self._had_unused:
            return None
        self._had_unused = True
        return self.fresh_set(generator)

    def start(self, solution: Solution, build_path: str) -> None:
        """Starts a solution's process, so that it is ready sooner when it is opened."""
        self._workers.start(solution, build_path)

    def open(self, solution: Solution, build_path: str) -> None:
        """Loads a solution in a process of its own; does nothing if it is warm.

        Raises: see ``open_all``.
        """
        self.open_all([(solution, build_path)])

    def open_all(self, solutions: Sequence[tuple[Solution, str]], *, ahead: int = 0) -> None:
        """Loads solutions, each in a process of its own; those that are warm stay as they are.

        Args:
            solutions: each with the place of its build.
            ahead: so many further processes of each are opened with them, for the times that it
                is opened again.

        Raises:
            CandidateFailedError: it cannot be loaded, or has tampered with its process.
            UnavailableError: the timer or its cache state is not to be had here.
        """
        by_sha = {each[0].sha256: each for each in solutions}
        cold = [each for sha, each in by_sha.items() if not self._workers.is_open(sha)]
        if not cold:
            return
        self._workers.open(*cold, ahead=ahead)
        for solution, _ in cold:
            # Sets that are drawn from here on are new to it.
            self._loaded_at[solution.sha256] = self._drawn
        self._had_unused = False

    def prepare(self, solution: Solution, build_path: str) -> None:
        """Starts the process that a solution has after its present one is discarded."""
        self._workers.prepare(solution, build_path)

    def discard_ready(self) -> None:
        """Ends processes that were opened ahead and are not needed."""
        self._workers.discard_ready()

    def discard(self, *sha256s: str) -> None:
        """Kills the processes of solutions."""
        self._workers.discard(*sha256s)

    def finish(self, sha256: str, timeout_s: float) -> int | None:
        """Lets a solution's process end by itself; its exit code, None where it did not."""
        return self._workers.finish(sha256, timeout_s)

    def call(
        self,
        sha256: str,
        number: int,
        *,
        phase: Phase,
        timed: bool,
        full: bool,
        shifts: dict[str, int] | None = None,
        calls: int = 1,
    ) -> CallOutcome:
        """Refills, poisons, calls, compares.

        Args:
            sha256: an open solution.
            number: input set of the current workload.
            phase: for the verdict.
            timed: whether the cache is flushed and the call timed.
            full: whether every element and every input byte is compared.
            shifts: places of tensors in their slots; None leaves all in the first.
            calls: of one that is not timed, so many back to back, then one look at the outputs.

        Raises:
            CandidateFailedError: wrong, crashed, timed out, or touched what is not its own.
        """
        assert self._workload is not None
        places = shifts or dict.fromkeys(self._arena.by_name(), 0)
        # Contents that were in a call before are never in one again.
        was_used = (self._workload.uuid, number) in self._used
        self._used.add((self._workload.uuid, number))
        self._met.add((sha256, self._workload.uuid, number))
        before = self._cpu_use(sha256)
        refilled = self._workers.ask_judge(
            "refill", set=number, shifts=places, vary=was_used, hold=timed
        )
        fields = {
            "axes": self._workload.axes,
            "shifts": places,
            "scalars": refilled["scalars"],
            "timed": timed,
            "calls": calls,
        }
        claim, wall_ns, noise_ns, early = self._timed_call(sha256, phase, fields, before)
        self._require_honest(claim, phase)
        if claim.bad_output is not None:
            self._blame(Verdict.FAIL, phase, "bad-output", claim.bad_output)
        conducted = self._conduct(sha256, phase)
        self._require_honest(conducted, phase)
        before, start_ns = self._cpu_use(sha256), time.perf_counter_ns()
        tiers = self._verify(sha256, number, phase, full=full)
        interval_ns = time.perf_counter_ns() - start_ns
        late = conduct.late_activity(busy_ns(before, self._cpu_use(sha256)), interval_ns)
        noticed = (*conduct.conduct_flags(conducted), *conduct.conduct_flags(claim))
        flags = (*noticed, *early, *late)
        details = claim.details.model_dump(exclude_none=True)
        return CallOutcome(claim.ns, wall_ns, details, tiers, noise_ns, flags)

    def _cpu_use(self, sha256: str) -> CpuUse:
        return cpu_use(self._workers.candidate(sha256).processes())

    def random_shifts(self, *, some: bool) -> dict[str, int]:
        """A new place for every tensor, or with ``some`` for a random part of them."""
        names = list(self._arena.by_name())
        moved = self._random.sample(names, max(1, len(names) // 2)) if some else names
        return {n: self._random.randint(1, self._arena.shifts) if n in moved else 0 for n in names}

    def single_shifts(self) -> list[dict[str, int]]:
        """New places for one tensor each, in random order; static inputs move together."""
        names, static = list(self._arena.by_name()), self.definition.kopt.static_inputs
        groups: list[tuple[str, ...]] = [(name,) for name in names if name not in static]
        self._random.shuffle(groups)
        if static:
            groups.append(tuple(static))
        still = dict.fromkeys(names, 0)
        return [still | {n: self._random.randint(1, self._arena.shifts) for n in g} for g in groups]

    def choose(self, numbers: Sequence[int], count: int) -> list[int]:
        """``count`` sets in random order, each as often as the others up to one."""
        chosen: list[int] = []
        while len(chosen) < count:
            chosen += self._random.sample(list(numbers), len(numbers))
        return chosen[:count]

    def profile(self, sha256: str, number: int, profiler: str) -> dict[str, Any]:
        """Runs one set under a profiler in the candidate's process.

        A profiler may take the activity records of its process from the timer for good:
        discard the process before it is timed.
        """
        assert self._workload is not None
        places = dict.fromkeys(self._arena.by_name(), 0)
        refilled = self._workers.ask_judge(
            "refill", set=number, shifts=places, vary=False, hold=False
        )
        timeout_s = self._call_timeout_s() * 4
        answer = self._workers.ask_candidate(
            sha256,
            "bench",
            "profile",
            timeout_s,
            axes=self._workload.axes,
            shifts=places,
            scalars=refilled["scalars"],
            profiler=profiler,
        )
        try:
            return read_claim(ProfileClaim, answer).model_dump(mode="json")
        except WireError as error:
            raise self._workers.failed(sha256, "bench", error) from error

    def calibrate(self, generator: str) -> dict[str, Any]:
        """What null kernels achieve on the current workload; no solution is involved."""
        found = self._workers.ask_judge("calibrate", generator=generator)["calibration"]
        assert isinstance(found, dict)
        return found

    def _forget(self, uuid: str) -> None:
        self._sets.pop(uuid, None)
        self._pools.drop(uuid)
        if self._workers.has_judge():
            self._workers.ask_judge("forget", uuid=uuid)

    def _set_bytes(self, workload: Workload) -> int:
        """What one set and its expected outputs take in the judge; static inputs are shared."""
        static = self.definition.kopt.static_inputs
        inputs = self.definition.input_shapes(workload.axes)
        outputs = self.definition.output_shapes(workload.axes)
        own = sum(shape.nbytes for shape in inputs if shape.name not in static)
        return own + sum(shape.numel * _EXPECTED_ITEM_BYTES for shape in outputs)

    @property
    def _flushed_by_judge(self) -> bool:
        """A GPU's caches are flushed by the timer, in the stream of the call."""
        return self._setting.target.kind != "cuda"

    def _call_timeout_s(self) -> float:
        return max(self._setting.options.call_timeout_s, 20 * self._reference_s)

    def _timed_call(
        self, sha256: str, phase: Phase, fields: dict[str, Any], idle: CpuUse
    ) -> _Called:
        early: list[Flag] = []
        noise_ns = 0
        timeout_s = self._call_timeout_s()
        client = self._workers.candidate(sha256)
        try:
            client.send("call", **fields)
            if fields["timed"]:
                client.answer(timeout_s=timeout_s, expect="flushed")
                processes = client.processes()
                asked_ns = time.perf_counter_ns()
                completed = self._workers.ask_judge(
                    "complete",
                    flush_bytes=self.flush_bytes,
                    processors=last_processors(processes) if self._flushed_by_judge else [],
                )
                noise_ns = time.perf_counter_ns() - asked_ns - completed["flush_ns"]
                if self._workers.flush_cpu_ns is not None:
                    used_ns = busy_ns(idle, cpu_use(processes))
                    early += conduct.early_activity(used_ns, self._workers.flush_cpu_ns)
                if written := completed["early_writes"]:
                    self._workers.discard(sha256)  # it waits for a word that will not come
                    detail = f"wrote to {', '.join(written)} before it was called"
                    self._blame(Verdict.REJECT, phase, "early-write", detail)
            start_ns = time.perf_counter_ns()
            if fields["timed"]:
                client.send("go")
            answer = client.answer(timeout_s=timeout_s)
            wall_ns = time.perf_counter_ns() - start_ns
            claim = read_claim(CallClaim, answer)
            if fields["timed"] and not claim.is_time:
                raise WireError(f"a call of {claim.ns!r} ns")
        except (WorkerFailedError, WireError) as error:
            raise self._workers.failed(sha256, phase, error) from error
        return _Called(claim, wall_ns, noise_ns, tuple(early))

    def _conduct(self, sha256: str, phase: Phase) -> Conduct:
        """Asked on its own: caches are cold after a call, and looking takes milliseconds."""
        answer = self._workers.ask_candidate(sha256, phase, "conduct", self._call_timeout_s())
        try:
            return read_claim(Conduct, answer)
        except WireError as error:
            raise self._workers.failed(sha256, phase, error) from error

    def _require_honest(self, claim: Conduct, phase: Phase) -> None:
        reason = conduct.tampering(claim)
        if reason is not None:
            self._blame(Verdict.REJECT, phase, reason.code, reason.detail)

    def _verify(
        self, sha256: str, number: int, phase: Phase, *, full: bool
    ) -> dict[str, TierResult]:
        answer = self._workers.ask_judge("verify", set=number, full=full, quiet_s=_QUIET_S)
        failed = any(tier["verdict"] == "fail" for tier in answer["tiers"].values())
        late = answer["late_writes"]
        if failed and not late and sha256 not in self._watched:
            self._watched.add(sha256)
            late = self._late_writes(sha256, phase)
        if late:
            detail = f"wrote to {', '.join(late)} after the call had returned"
            self._blame(Verdict.REJECT, phase, "late-write", detail)
        if answer["red_zones"]:
            names = ", ".join(answer["red_zones"])
            self._blame(Verdict.FAIL, phase, "out-of-bounds-write", f"wrote outside {names}")
        if answer["inputs_changed"]:
            names = ", ".join(answer["inputs_changed"])
            self._blame(Verdict.FAIL, phase, "input-modified", f"wrote to the input {names}")
        tiers = {name: TierResult.model_validate(t) for name, t in answer["tiers"].items()}
        for tier in tiers.values():
            if tier.verdict in ("fail", "invalid"):
                verdict = Verdict(tier.verdict)
                raise CandidateFailedError(verdict, phase, self._wrong(tier), tiers)
        return tiers

    def _late_writes(self, sha256: str, phase: Phase) -> list[str]:
        """Wrong outputs that change after all: in the arena, or where they were returned."""
        late = list(self._workers.ask_judge("watch", quiet_s=_LONG_QUIET_S)["late_writes"])
        if not late:
            timeout_s = self._call_timeout_s()
            answer = self._workers.ask_candidate(sha256, phase, "watch", timeout_s, quiet_s=0.0)
            try:
                late += read_claim(CallClaim, answer).late_writes
            except WireError as error:
                raise self._workers.failed(sha256, phase, error) from error
        return late

    def _wrong(self, tier: TierResult) -> Reason:
        """The first wrong workload, output, element, expected and actual value."""
        assert self._workload is not None
        where = f"workload {self._workload.uuid} {self._workload.axes}, {tier.tier} tier: "
        cause = tier.reason or Reason(code="wrong-output", detail="an output is wrong")
        return Reason(code=cause.code, detail=where + cause.detail)

    def _blame(self, verdict: Verdict, phase: Phase, code: str, detail: str) -> None:
        assert self._workload is not None
        where = f"workload {self._workload.uuid} {self._workload.axes}: "
        raise CandidateFailedError(verdict, phase, Reason(code=code, detail=where + detail))
