"""One judge and its candidates, warm over all workloads of a definition on one device.

The orchestrator's side: no torch, no candidate code, no expected outputs. A session turns
requests to workers into verdicts and samples; what is measured when is decided above it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kopt_harness.errors import KoptError
from kopt_harness.layout import Arena
from kopt_harness.outcome import (
    CallOutcome,
    CandidateFailedError,
    infra,
    judge_failed,
    machine_failed,
)
from kopt_harness.pools import PoolMemory
from kopt_harness.schema import (
    Definition,
    Phase,
    Reason,
    Solution,
    TierResult,
    Verdict,
    Workload,
)
from kopt_harness.setting import Setting
from kopt_harness.worker.claims import CallClaim, ProfileClaim, read_claim
from kopt_harness.worker.spawn import WorkerClient, WorkerFailedError, arena_file
from kopt_harness.worker.wire import WireError

__all__ = ["Session"]

_EXPECTED_ITEM_BYTES = 4
"""Expected outputs are kept in float32."""
_OPEN_TIMEOUT_S = 120.0
_LOAD_TIMEOUT_S = 300.0


class Session:
    """Opens workers on first use; close it, or use it as a context manager."""

    def __init__(
        self,
        setting: Setting,
        definition: Definition,
        workloads: Sequence[Workload],
        *,
        seed_salt: int = 0,
    ) -> None:
        self._setting = setting
        self.definition = definition
        self._arena = Arena.for_workloads(definition, workloads)
        self._seed_salt = seed_salt
        self._fd = arena_file()
        self._judge: WorkerClient | None = None
        self._export: dict[str, Any] = {}
        self._candidates: dict[str, WorkerClient] = {}
        self._random = random.Random(setting.options.seed)
        self._workload: Workload | None = None
        self._sets: dict[str, dict[str, list[int]]] = {}
        self._pools = PoolMemory()
        self._reference_s = 0.0
        self._had_unused = False
        self._closed_phases_ns: dict[str, int] = {}
        self.generators: dict[str, str] = {}
        """Kind by generator name; known once a judge is open."""
        self.isolation: dict[str, Any] = {}
        """What was in force in judge and candidate."""
        self.flush_bytes = 0
        """Written before each timed call."""

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
        for sha in list(self._candidates):
            self.discard(sha)
        if self._judge is not None:
            self._retire(self._judge)
            self._judge = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def phases_ns(self) -> dict[str, int]:
        """Wall time by phase of all workers so far."""
        total = dict(self._closed_phases_ns)
        live = [self._judge, *self._candidates.values()]
        for client in live:
            for name, ns in (client.phases_ns if client else {}).items():
                total[name] = total.get(name, 0) + ns
        return total

    def bind(self, workload: Workload) -> None:
        """Makes ``workload`` the current one; its input sets are drawn as they are needed."""
        self._open_judge()
        if self._workload != workload:
            for uuid in self._pools.enter(workload.uuid):
                self._forget(uuid)
            self._ask_judge("workload", uuid=workload.uuid, axes=workload.axes)
            self._workload = workload
            self._had_unused = False
            self._reference_s = 0.0

    def sets(self, generator: str, count: int, *, reference: bool = True) -> list[int]:
        """The first ``count`` sets of a generator on the current workload.

        Raises:
            CandidateFailedError: verdict ``invalid``: a kernel that writes zeros would pass.
        """
        assert self._workload is not None
        known = self._sets.setdefault(self._workload.uuid, {}).setdefault(generator, [])
        while len(known) < count:
            known.append(self.fresh_set(generator, reference=reference))
        return known[:count]

    def fresh_set(self, generator: str, *, reference: bool = True) -> int:
        """A set that no call has seen."""
        assert self._workload is not None
        self._pools.add(self._workload.uuid, self._set_bytes(self._workload))
        answer = self._ask_judge("draw", generator=generator, reference=reference)
        if answer["invalid"]:
            reason = Reason.model_validate(answer["invalid"])
            raise CandidateFailedError(Verdict.INVALID, "check", reason)
        self._reference_s = max(self._reference_s, answer["reference_s"])
        return int(answer["set"])

    def renew(self) -> None:
        """Forgets every set, so that whoever is called next meets none that was used."""
        for uuid in self._pools.known():
            self._forget(uuid)
        self._workload = None

    def unused_set(self, generator: str) -> int | None:
        """A set that no call has seen, once for each visit of a workload; then None."""
        if self._had_unused:
            return None
        self._had_unused = True
        return self.fresh_set(generator)

    def open(self, solution: Solution, build_path: str) -> None:
        """Starts the solution's process and loads it; does nothing if it is warm.

        Raises:
            CandidateFailedError: it cannot be loaded.
            UnavailableError: the timer or its cache state is not to be had here.
        """
        if solution.sha256 in self._candidates:
            return
        self._open_judge()
        client = WorkerClient("candidate", self._fd, environment=self._setting.worker_variables)
        self._candidates[solution.sha256] = client
        options = self._setting.options
        try:
            opened = _timed_phase(
                client,
                "start",
                lambda: client.request(
                    "open",
                    timeout_s=_OPEN_TIMEOUT_S,
                    solution=solution.model_dump(mode="json"),
                    export=self._export,
                    timer=self._setting.timer,
                    cache=options.cache,
                    l2_bytes=self._setting.l2_bytes,
                    **self._device_fields(),
                ),
            )
        except WorkerFailedError as error:
            self.discard(solution.sha256)
            if error.kind in ("unavailable", "infra"):
                raise machine_failed(error) from error
            raise infra("the candidate process could not be started", error) from error
        self.isolation["candidate"] = opened["isolation"]
        self.flush_bytes = opened["flush_bytes"]
        self._ask_candidate(solution.sha256, "load", "load", _LOAD_TIMEOUT_S, build=build_path)

    def discard(self, sha256: str) -> None:
        """Kills a solution's process."""
        client = self._candidates.pop(sha256, None)
        if client is not None:
            self._retire(client)

    def call(
        self,
        sha256: str,
        number: int,
        *,
        phase: Phase,
        timed: bool,
        full: bool,
        shifts: dict[str, int] | None = None,
    ) -> CallOutcome:
        """Refills, poisons, calls, compares.

        Args:
            sha256: an open solution.
            number: input set of the current workload.
            phase: for the verdict.
            timed: whether the cache is flushed and the call timed.
            full: whether every element and every input byte is compared.
            shifts: places of tensors in their slots; None leaves all in the first.

        Raises:
            CandidateFailedError: wrong, crashed, timed out, or touched what is not its own.
        """
        assert self._workload is not None
        places = shifts or dict.fromkeys(self._arena.by_name(), 0)
        refilled = self._ask_judge("refill", set=number, shifts=places)
        fields = {
            "axes": self._workload.axes,
            "shifts": places,
            "scalars": refilled["scalars"],
            "timed": timed,
        }
        claim, wall_ns = self._timed_call(sha256, phase, fields)
        if claim.bad_output is not None:
            self._blame(Verdict.FAIL, phase, "bad-output", claim.bad_output)
        tiers = self._verify(number, phase, full=full)
        return CallOutcome(claim.ns, wall_ns, claim.details.model_dump(exclude_none=True), tiers)

    def random_shifts(self, *, some: bool) -> dict[str, int]:
        """A new place for every tensor, or with ``some`` for a random part of them."""
        names = list(self._arena.by_name())
        moved = self._random.sample(names, max(1, len(names) // 2)) if some else names
        return {n: self._random.randint(1, self._arena.shifts) if n in moved else 0 for n in names}

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
        refilled = self._ask_judge("refill", set=number, shifts=places)
        timeout_s = self._call_timeout_s() * 4
        answer = self._ask_candidate(
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
            raise self._broken(sha256, "bench", error) from error

    def _forget(self, uuid: str) -> None:
        self._sets.pop(uuid, None)
        self._pools.drop(uuid)
        if self._judge is not None:
            self._ask_judge("forget", uuid=uuid)

    def _set_bytes(self, workload: Workload) -> int:
        """What one set and its expected outputs take in the judge; static inputs are shared."""
        static = self.definition.kopt.static_inputs
        inputs = self.definition.input_shapes(workload.axes)
        outputs = self.definition.output_shapes(workload.axes)
        own = sum(shape.nbytes for shape in inputs if shape.name not in static)
        return own + sum(shape.numel * _EXPECTED_ITEM_BYTES for shape in outputs)

    def _call_timeout_s(self) -> float:
        return max(self._setting.options.call_timeout_s, 20 * self._reference_s)

    def _timed_call(
        self, sha256: str, phase: Phase, fields: dict[str, Any]
    ) -> tuple[CallClaim, int]:
        timeout_s = self._call_timeout_s()
        client = self._candidates[sha256]
        try:
            client.send("call", **fields)
            if fields["timed"]:
                client.answer(timeout_s=timeout_s, expect="flushed")
            start_ns = time.perf_counter_ns()
            answer = client.answer(timeout_s=timeout_s)
            wall_ns = time.perf_counter_ns() - start_ns
            claim = read_claim(CallClaim, answer)
            if fields["timed"] and not claim.is_time:
                raise WireError(f"a call of {claim.ns!r} ns")
        except WorkerFailedError as error:
            raise self._verdict_of(sha256, phase, error) from error
        except WireError as error:
            raise self._broken(sha256, phase, error) from error
        return claim, wall_ns

    def _verify(self, number: int, phase: Phase, *, full: bool) -> dict[str, TierResult]:
        answer = self._ask_judge("verify", set=number, full=full)
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

    def _ask_candidate(
        self, sha256: str, phase: Phase, type_: str, timeout_s: float, **fields: Any
    ) -> dict[str, Any]:
        try:
            return self._candidates[sha256].request(type_, timeout_s=timeout_s, **fields)
        except WorkerFailedError as error:
            raise self._verdict_of(sha256, phase, error) from error

    def _verdict_of(
        self, sha256: str, phase: Phase, error: WorkerFailedError
    ) -> CandidateFailedError | KoptError:
        """A dead or failing process is not used again.

        Candidate code can send what it likes, so that it cannot blame the machine for its own
        faults, only a GPU's timer is believed: it may lose records.
        """
        self.discard(sha256)
        if error.kind == "infra" and self._setting.target.kind != "cpu":
            return machine_failed(error)
        verdict = Verdict.TIMEOUT if error.kind == "timeout" else Verdict.CRASH
        code = {"timeout": "no-answer", "crash": "process-ended"}.get(error.kind, "exception")
        return CandidateFailedError(verdict, phase, Reason(code=code, detail=error.detail))

    def _broken(self, sha256: str, phase: Phase, error: WireError) -> Exception:
        """What came from a candidate process is not of the form that it must have."""
        failed = WorkerFailedError("crash", f"candidate: broken protocol: {error}")
        return self._verdict_of(sha256, phase, failed)

    def _ask_judge(self, type_: str, **fields: Any) -> dict[str, Any]:
        judge = self._open_judge()
        try:
            return judge.request(type_, timeout_s=self._setting.options.judge_timeout_s, **fields)
        except WorkerFailedError as error:
            raise judge_failed("the judge failed", error) from error

    def _open_judge(self) -> WorkerClient:
        if self._judge is None:
            client = WorkerClient("judge", self._fd, environment=self._setting.worker_variables)
            self._judge = client
            seed = self._setting.options.seed
            try:
                opened = _timed_phase(
                    client,
                    "start",
                    lambda: client.request(
                        "open",
                        timeout_s=_OPEN_TIMEOUT_S,
                        folder=str(Path(self._setting.catalog.folder(self.definition)).resolve()),
                        seed=None if seed is None else seed + self._seed_salt,
                        **self._device_fields(),
                    ),
                )
            except WorkerFailedError as error:
                raise judge_failed("the judge could not be started", error) from error
            self._export = opened["export"]
            self.generators = opened["generators"]
            self.isolation["judge"] = opened["isolation"]
        return self._judge

    def _device_fields(self) -> dict[str, Any]:
        return {
            "definition": self.definition.model_dump(mode="json"),
            "device_kind": self._setting.target.kind,
            "device_index": 0,
            "arena": self._arena.model_dump(mode="json"),
        }

    def _retire(self, client: WorkerClient) -> None:
        for name, ns in client.phases_ns.items():
            self._closed_phases_ns[name] = self._closed_phases_ns.get(name, 0) + ns
        client.close()


def _timed_phase(
    client: WorkerClient, name: str, ask: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Counts starting a process and its imports, which the worker itself cannot see."""
    start_ns = time.perf_counter_ns()
    answer = ask()
    client.phases_ns.pop("open", None)
    client.phases_ns[name] = time.perf_counter_ns() - start_ns
    return answer
