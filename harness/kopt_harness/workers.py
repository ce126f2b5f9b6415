"""The processes of a session: one judge, and one candidate for each open solution.

The orchestrator's side: starts them, speaks to them, turns their failures into a verdict on
a candidate or an error of the machine, and sees to it that nothing of them is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kopt_harness import conduct
from kopt_harness.device_health import DeviceHealth
from kopt_harness.errors import InfraError, StoppedError
from kopt_harness.layout import Arena
from kopt_harness.outcome import (
    CandidateFailedError,
    candidate_failed,
    infra,
    judge_failed,
    machine_failed,
)
from kopt_harness.schema import Definition, Phase, Reason, Solution, Verdict
from kopt_harness.setting import Setting
from kopt_harness.waiting import Waiting
from kopt_harness.worker.claims import Conduct, read_claim
from kopt_harness.worker.spawn import (
    Caches,
    Observer,
    WorkerClient,
    WorkerFailedError,
    arena_file,
)
from kopt_harness.worker.wire import WireError

__all__ = ["Workers"]

_OPEN_TIMEOUT_S = 120.0


class Workers:
    """Started on first use; close it."""

    def __init__(
        self,
        setting: Setting,
        definition: Definition,
        arena: Arena,
        *,
        salt: int,
        observer: Observer | None = None,
        own_calls: int = 0,
    ) -> None:
        self._setting = setting
        self._definition = definition
        self._arena = arena
        self._salt = salt
        self._observer = observer
        self._own_calls = own_calls
        self._fd = arena_file()
        self._judge: WorkerClient | None = None
        self._export: dict[str, Any] = {}
        self._waiting = Waiting(self._candidate_client)
        self._open: dict[str, WorkerClient] = {}
        self._spent: list[WorkerClient] = []
        self._health = DeviceHealth(setting.device_id, self._clients)
        self._caches: dict[str, Caches] = {}
        self._closed_phases_ns: dict[str, int] = {}
        self._killed = False
        self._awake: str | None = None
        self.generators: dict[str, str] = {}
        """Kind by generator name; known once a judge is open."""
        self.isolation: dict[str, Any] = {}
        """What was in force in judge and candidate."""
        self.flush_bytes = 0
        """Written before each timed call."""
        self.flush_cpu_ns: int | None = None
        """Processor time that this takes a candidate; None where that was not measured."""
        self.own_busy_ns: list[int] = []
        """Of the evaluator's own kernels, as the timer saw them before candidate code."""

    def close(self) -> None:
        """Ends all of them."""
        for sha in list(self._open):
            self.discard(sha)
        self._end([*self._waiting.take_all(), *self._take_spent()])
        if self._judge is not None:
            self._retire(self._judge)
            self._judge = None
        while self._caches:
            self._caches.popitem()[1].remove()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def kill(self) -> None:
        """Kills all of them from another thread; whoever uses them fails, and closes."""
        self._killed = True
        for client in self._clients():
            client.kill()

    def _clients(self) -> list[WorkerClient]:
        """All that live."""
        judge = [] if self._judge is None else [self._judge]
        return [*judge, *self._open.values(), *self._waiting.clients, *self._spent]

    @property
    def phases_ns(self) -> dict[str, int]:
        """Wall time by phase of all workers so far."""
        total = dict(self._closed_phases_ns)
        for client in self._clients():
            for name, ns in client.phases_ns.items():
                total[name] = total.get(name, 0) + ns
        return total

    def is_open(self, sha256: str) -> bool:
        """Whether a solution's process is warm."""
        return sha256 in self._open

    def start(self, solution: Solution, build_path: str) -> None:
        """Starts a solution's process without waiting for it."""
        if solution.sha256 not in self._open:
            self._waiting.start(solution.sha256, build_path)

    def prepare(self, solution: Solution, build_path: str) -> None:
        """Starts a process for the solution that takes the place of its next one.

        It has no candidate code and no device until it is opened.
        """
        self._waiting.prepare(solution.sha256, build_path)

    def open(self, *solutions: tuple[Solution, str], ahead: int = 0, timed: bool = False) -> None:
        """Opens the processes of solutions, side by side, and has each load its solution alone.

        Args:
            solutions: each with the place of its build.
            ahead: so many further processes of each are opened with them, without any candidate
                code, and stopped until they are the next ones of their solution.
            timed: whether they are for timed calls alone, and no profiler: their timer begins to
                record before they wait, all of them at the same time.

        Raises:
            CandidateFailedError: one cannot be loaded, or has tampered with its process.
            UnavailableError: the timer or its cache state is not to be had here.
        """
        self._health.require_well()
        self.judge()
        if any(self._waiting.lacks(solution.sha256) for solution, _ in solutions):
            self._make_ready(solutions, 1 + ahead, timed)
        self._stop_awake()
        self._awake = None
        for solution, _ in solutions:
            self._open[solution.sha256] = self._waiting.take(solution.sha256)
        for solution, build_path in solutions:
            self._load(solution.sha256, build_path)

    def discard_ready(self) -> None:
        """Ends the processes that were opened ahead, and those that were set aside."""
        self._end([*self._waiting.take_ready(), *self._take_spent()])

    def _make_ready(
        self, solutions: Sequence[tuple[Solution, str]], count: int, timed: bool
    ) -> None:
        """Brings each to so many processes that wait, stopped, for their solution."""
        fresh = self._waiting.fill(solutions, count)
        self._stop_awake()
        self._awake = None
        with ThreadPoolExecutor(max_workers=1 + len(fresh)) as pool:
            ended = pool.submit(self._end, self._take_spent())
            answers = [pool.submit(self._ask_to_open, *each, timed) for each in fresh]
        ended.result()
        for answer in answers:
            error = answer.exception()
            if isinstance(error, WorkerFailedError):
                self.discard_ready()
                if error.kind in ("unavailable", "infra"):
                    raise machine_failed(error) from error
                raise infra("the candidate process could not be started", error) from error
            self._heed(answer.result())
        for _, client in fresh:
            self._freeze(client)

    def _ask_to_open(self, solution: Solution, client: WorkerClient, timed: bool) -> dict[str, Any]:
        """No candidate code runs in it; called in a thread of its own."""
        return _timed_phase(
            client,
            "start",
            lambda: client.request(
                "open",
                timeout_s=_OPEN_TIMEOUT_S,
                solution=solution.model_dump(mode="json"),
                export=self._export,
                timer=self._setting.timer,
                cache=self._setting.options.cache,
                l2_bytes=self._setting.l2_bytes,
                own_calls=self._own_calls,
                timed=timed,
                **self._device_fields(),
            ),
        )

    def _heed(self, answer: dict[str, Any]) -> None:
        """Keeps what a candidate's process said of itself before it had candidate code."""
        self.isolation["candidate"] = answer["isolation"]
        self.flush_bytes = answer["flush_bytes"]
        own_ns = answer.get("own_busy_ns")
        if isinstance(own_ns, list):
            self.own_busy_ns = [ns for ns in own_ns if isinstance(ns, int)]
        flush_cpu_ns = answer.get("flush_cpu_ns")
        if isinstance(flush_cpu_ns, int):
            self.flush_cpu_ns = max(self.flush_cpu_ns or 0, flush_cpu_ns)

    def discard(self, *sha256s: str) -> None:
        """Kills the processes of solutions, side by side."""
        clients = [
            client
            for sha in sha256s
            if (client := self._open.pop(sha, None) or self._waiting.take_started(sha))
        ]
        if not clients:
            return
        if self._awake in sha256s:
            self._awake = None
        self._end(clients)

    def set_aside(self, *sha256s: str) -> None:
        """Stops processes of solutions for good; they are ended beside the next that are opened.

        To end one and give its memory back takes a device longer than many calls. Where less than
        half of what was free is left, they are ended at once.
        """
        for sha in sha256s:
            client = self._open.pop(sha, None)
            if client is not None:
                self._freeze(client)
                self._spent.append(client)
        if self._awake in sha256s:
            self._awake = None
        if self._spent and not self._health.has_room(self.ask_judge("canary")["free_bytes"]):
            self._end(self._take_spent())

    def _take_spent(self) -> list[WorkerClient]:
        spent, self._spent = self._spent, []
        return spent

    def _end(self, clients: Sequence[WorkerClient]) -> None:
        """Ends processes side by side, and takes a device out of use that does not recover."""
        if not clients:
            return
        with ThreadPoolExecutor(max_workers=len(clients)) as pool:
            endings = list(pool.map(self._retire, clients))
        survivors = tuple(pid for ending in endings for pid in ending)
        judge = None if self._setting.target.kind == "cpu" else self._judge
        in_use = bool(self._open or self._spent or self._waiting.ready)
        self._health.examine(judge, survivors, in_use=in_use)

    def finish(self, sha256: str, timeout_s: float) -> int | None:
        """Lets a solution's process end by itself; its exit code, None where it did not."""
        client = self._open[sha256]
        ended = client.finish(timeout_s)
        self.discard(sha256)
        return client.ending.returncode if ended and client.ending else None

    def candidate(self, sha256: str) -> WorkerClient:
        """The process of an open solution; those of the others are stopped.

        So that none of them can touch the arena, or use a processor, in another one's call.

        Raises:
            CandidateFailedError: it has run while it was to be stopped.
        """
        if self._awake != sha256:
            self._stop_awake()
            self._open[sha256].thaw()
            self._awake = sha256
            self.require_still(sha256)
        return self._open[sha256]

    def require_still(self, sha256: str) -> None:
        """Ends an open solution's process that ran while it was to be stopped.

        Raises:
            CandidateFailedError: it did.
        """
        if restless := self._open[sha256].restless():
            self.discard(sha256)
            reason = Reason(code="ran-while-stopped", detail=restless)
            raise CandidateFailedError(Verdict.REJECT, "bench", reason)

    def _stop_awake(self) -> None:
        if self._awake is not None:
            self._freeze(self._open[self._awake])

    def _freeze(self, client: WorkerClient) -> None:
        """Stops a process, unless a profiler has started it; nobody else is called there then.

        ncu seems to take an application that goes on after a stop for one that has failed: its
        ``error code (18)`` is the number of SIGCONT.
        """
        if self._observer is None:
            client.freeze()

    def ask_candidate(
        self, sha256: str, phase: Phase, type_: str, timeout_s: float, **fields: Any
    ) -> dict[str, Any]:
        """A request to an open solution's process.

        Raises:
            CandidateFailedError: it crashed, raised, or did not answer in time.
        """
        try:
            return self.candidate(sha256).request(type_, timeout_s=timeout_s, **fields)
        except WorkerFailedError as error:
            raise self.failed(sha256, phase, error) from error

    def failed(
        self, sha256: str, phase: Phase, error: WorkerFailedError | WireError
    ) -> CandidateFailedError | InfraError:
        """The verdict for a failure; the process is not used again.

        None on the candidate where the process from which it was forked has ended: it ends its
        workers, and no candidate reaches it.
        """
        self.discard(sha256)
        if isinstance(error, WireError):
            error = WorkerFailedError("crash", f"candidate: broken protocol: {error}")
        if error.kind == "lost":
            return infra("the candidate process was lost", error)
        has_records = self._setting.target.kind != "cpu"
        return candidate_failed(error, phase, has_records=has_records)

    def ask_judge(self, type_: str, **fields: Any) -> dict[str, Any]:
        """A request to the judge.

        Raises:
            KoptError: the judge failed.
        """
        judge = self.judge()
        try:
            return judge.request(type_, timeout_s=self._setting.options.judge_timeout_s, **fields)
        except WorkerFailedError as error:
            raise judge_failed("the judge failed", error) from error

    def has_judge(self) -> bool:
        """Whether there is one yet."""
        return self._judge is not None

    def judge(self) -> WorkerClient:
        """The judge, opened on first use."""
        if self._judge is None:
            client = self._client("judge")
            self._judge = client
            seed = self._setting.options.seed
            folder = Path(self._setting.catalog.folder(self._definition)).resolve()
            shelf = self._setting.shelf
            try:
                opened = _timed_phase(
                    client,
                    "start",
                    lambda: client.request(
                        "open",
                        timeout_s=_OPEN_TIMEOUT_S,
                        folder=str(folder),
                        seed=None if seed is None else seed + self._salt,
                        shelf=None if shelf is None else str(shelf),
                        **self._device_fields(),
                    ),
                )
            except WorkerFailedError as error:
                raise judge_failed("the judge could not be started", error) from error
            self._export = opened["export"]
            self.generators = opened["generators"]
            self.isolation["judge"] = opened["isolation"]
            if self._setting.target.kind != "cpu":
                self._begin_health(client)
        return self._judge

    def _begin_health(self, judge: WorkerClient) -> None:
        try:
            self._health.begin(judge)
        except WorkerFailedError as error:
            raise judge_failed("the judge failed", error) from error

    def keep_caches(self, sha256s: Collection[str]) -> None:
        """From now on all processes of each of these solutions share what libraries compile.

        For peers, which are trusted: what a candidate leaves for its next process could be answers.
        """
        for sha in sha256s:
            if sha not in self._caches:
                self._caches[sha] = Caches.make()

    def _candidate_client(self, sha256: str, build_path: str) -> WorkerClient:
        module = "candidate" if self._observer is None else "observed"
        return self._client(module, build_path, self._caches.get(sha256))

    def _client(
        self, module: str, build_path: str | None = None, caches: Caches | None = None
    ) -> WorkerClient:
        if self._killed:
            raise StoppedError("the session was killed")
        observer = self._observer if module == "observed" else None
        folders = () if observer is None else observer.folders
        return WorkerClient(
            module,
            self._fd,
            environment=self._setting.worker_variables,
            readable=None if build_path is None else (Path(build_path), *map(Path, folders)),
            roots=(self._setting.catalog.root.path,),
            observer=observer,
            caches=caches,
        )

    def _load(self, sha256: str, build_path: str) -> None:
        """Candidate code runs from here on."""
        answer = self.ask_candidate(
            sha256, "load", "load", self._setting.options.load_timeout_s, build=build_path
        )
        try:
            reason = conduct.tampering(read_claim(Conduct, answer))
        except WireError as error:
            raise self.failed(sha256, "load", error) from error
        if reason is not None:
            self.discard(sha256)
            raise CandidateFailedError(Verdict.REJECT, "load", reason)

    def _device_fields(self) -> dict[str, Any]:
        return {
            "definition": self._definition.model_dump(mode="json"),
            "device_kind": self._setting.target.kind,
            "device_index": 0,
            "arena": self._arena.model_dump(mode="json"),
        }

    def _retire(self, client: WorkerClient) -> tuple[int, ...]:
        """Ends a worker; what of it cannot be ended."""
        for name, ns in client.phases_ns.items():
            self._closed_phases_ns[name] = self._closed_phases_ns.get(name, 0) + ns
        return client.close().survivors


def _timed_phase(
    client: WorkerClient, name: str, ask: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Counts starting a process and its imports, which the worker itself cannot see."""
    start_ns = time.perf_counter_ns()
    answer = ask()
    client.phases_ns.pop("open", None)
    client.phases_ns[name] = time.perf_counter_ns() - start_ns
    return answer
