"""Worker pairs that check workloads side by side, ahead of the timing of whoever comes next.

Each pair has a judge of its own and takes one workload after the other, first solution first.
What it finds goes into the ledger, where the sweep of the solution takes it from; so nothing
here decides anything. A pair starts work only while there is memory for it (``room.py``), builds
go ahead of it, and a judge that was lost is replaced (``attempts.py``).

Timing is the caller's, who waits until all is checked and the pairs are gone: their kernels would
take the device, or on a CPU caches and bandwidth, from what is timed. Builds go on beside checks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kopt_harness.attempts import trying_again
from kopt_harness.errors import KoptError, StoppedError, TransientError
from kopt_harness.evaluate import MAX_DEATHS, build, evaluate, refusal
from kopt_harness.ledger import Ledger, ScopedLedger
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.room import Room, free_bytes, pair_bytes, work_bytes
from kopt_harness.schema import Solution, Verdict, Workload, WorkloadResult
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.watch import Watch
from kopt_harness.worker.spawn import WorkerFailedError

__all__ = ["Checked", "Fleet", "GuardedLedger", "Job", "admitted_workers"]

Checked = Callable[[Solution, Workload, WorkloadResult], None]
_BUILDERS = 2
_UNDER_ITS_HANDS = (
    KoptError,
    StoppedError,
    CandidateFailedError,
    WorkerFailedError,
    OSError,
    ValueError,
)
"""What comes of a session that another thread kills."""
_POOL_SHARE = 0.25
"""Of the free memory, for input sets that judges keep."""


class Job(NamedTuple):
    """One solution to check."""

    setting: Setting
    solution: Solution
    workloads: Sequence[Workload]
    ledger: Ledger


@dataclass
class _State:
    """How far a job is."""

    job: Job
    waiting: deque[Workload]
    built: Future[bool]
    left: int
    deaths: int = 0
    over: threading.Event = field(default_factory=threading.Event)


class GuardedLedger:
    """A ledger that takes nothing more once work was stopped.

    Whoever stops it ends processes under the hands of their sessions, and what sessions make of
    that is no verdict.
    """

    def __init__(self, inner: Ledger, stop: threading.Event) -> None:
        """Looks through to another ledger until ``stop`` is set."""
        self._inner = inner
        self._stop = stop

    def get(self, key: str) -> dict[str, Any] | None:
        """As the ledger has it."""
        return self._inner.get(key)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps a unit.

        Raises:
            StoppedError: Work was stopped.
        """
        if self._stop.is_set():
            raise StoppedError("the sweep was stopped")
        self._inner.put(key, value)

    def scoped(self, prefix: str) -> Ledger:
        """A view with ``prefix/`` before every key."""
        return ScopedLedger(self, prefix)


def admitted_workers(setting: Setting, workloads: Sequence[Workload], solution: Solution) -> int:
    """How many worker pairs fit into the memory that is free now, at most ``workers``."""
    definition = setting.catalog.resolve(solution.definition)
    each = pair_bytes(definition, workloads)
    each += min(work_bytes(definition, workload, _sets(setting)) for workload in workloads)
    return max(1, min(setting.options.workers, free_bytes() // each, len(workloads)))


def _sets(setting: Setting) -> int:
    return setting.options.trials + setting.options.sweep_stress_sets + 1


class Fleet:
    """Use as a context manager: leaving it early stops everything."""

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        watch: Watch | None = None,
        checked: Checked | None = None,
        name: str = "",
        stop: threading.Event | None = None,
    ) -> None:
        """Starts to check.

        Args:
            jobs: In this order; all on one device, whose setting says how many pairs.
            watch: Is told what every pair does.
            checked: Called after each workload, in the thread of its pair.
            name: Of the device, where there are several.
            stop: Set by whoever stops all of several fleets.
        """
        self._watch = watch or Watch(0)
        self._checked = checked
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._builders = ThreadPoolExecutor(_BUILDERS)
        self._states = [self._state(job) for job in jobs]
        most = [admitted_workers(job.setting, job.workloads, job.solution) for job in jobs]
        self.workers = max(most, default=0)
        """Pairs that are at work."""
        free = free_bytes()
        self._room = Room(int(free * (1 - _POOL_SHARE)))
        self._pool_bytes = int(free * _POOL_SHARE / max(1, self.workers))
        self._pool = ThreadPoolExecutor(max(1, self.workers))
        self._running = [
            self._pool.submit(self._work, number, f"{name}worker {number + 1}")
            for number in range(self.workers)
        ]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop()
        self._pool.shutdown()
        self._builders.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Ends all pairs; what was not complete is not recorded."""
        self._stop.set()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.kill()
        for state in self._states:
            state.over.set()

    def wait(self) -> None:
        """Until all is checked; fails as soon as a pair has failed for good."""
        for state in self._states:
            while not state.over.wait(0.1) and not self._stop.is_set():
                self._require_well()
        self._require_well()
        if self._stop.is_set():
            raise StoppedError("the sweep was stopped")

    def _require_well(self) -> None:
        for running in self._running:
            if running.done():
                running.result()

    def _state(self, job: Job) -> _State:
        built = self._builders.submit(self._build, job)
        definition = job.setting.catalog.resolve(job.solution.definition)
        # The longest first, or one pair works on it while the others have nothing left to do.
        order = sorted(job.workloads, key=lambda each: -work_bytes(definition, each, 1))
        return _State(job, deque(order), built, left=len(job.workloads))

    def _build(self, job: Job) -> bool:
        if self._stop.is_set() or refusal(job.setting, job.solution) is not None:
            return False
        return build(job.setting, job.solution).ok

    def _work(self, number: int, worker: str) -> None:
        """One pair, until nothing is left."""
        pair = _Pair(self._pool_bytes, self.workers, number)
        try:
            while not self._stop.is_set() and (taken := self._next()) is not None:
                state, workload = taken
                self._watch.work(worker, f"{state.job.solution.name}, workload {workload.index}")
                self._check(pair, number, state, workload)
        except (
            KoptError,
            StoppedError,
            CandidateFailedError,
            WorkerFailedError,
            OSError,
            ValueError,
        ):
            if not self._stop.is_set():
                raise
        finally:
            self._watch.work(worker, "")
            with self._lock:
                self._sessions.pop(number, None)
            pair.close()

    def _next(self) -> tuple[_State, Workload] | None:
        """The first workload of the first job that has one left, once that is built."""
        for state in self._states:
            if not state.over.is_set() and state.waiting and not state.built.result():
                self._give_up(state)
            with self._lock:
                if state.deaths >= MAX_DEATHS:
                    self._give_up_locked(state)
                if state.waiting:
                    return state, state.waiting.popleft()
        return None

    def _give_up(self, state: _State) -> None:
        with self._lock:
            self._give_up_locked(state)

    def _give_up_locked(self, state: _State) -> None:
        state.left -= len(state.waiting)
        state.waiting.clear()
        if state.left == 0:
            state.over.set()

    def _check(self, pair: _Pair, number: int, state: _State, workload: Workload) -> None:
        job = state.job
        definition = job.setting.catalog.resolve(job.solution.definition)
        ledger = GuardedLedger(job.ledger, self._stop)

        def check() -> WorkloadResult:
            session = pair.session(job)
            with self._lock:
                self._sessions[number] = session
            if self._stop.is_set():
                raise StoppedError("the sweep was stopped")
            found = evaluate(
                job.setting,
                job.solution,
                [workload],
                ledger,
                session=session,
                stress_sets=job.setting.options.sweep_stress_sets,
            )
            return found.workloads[0]

        def failed(error: TransientError) -> None:
            del error
            if self._stop.is_set():
                raise StoppedError("the sweep was stopped")
            pair.close()
            self._watch.retried()

        nbytes = work_bytes(definition, workload, _sets(job.setting))
        with self._room.taken(nbytes + pair_bytes(definition, job.workloads)):
            result = trying_again(check, failed)
        self._watch.done(result.verdict)
        if self._checked is not None:
            self._checked(job.solution, workload, result)
        with self._lock:
            state.deaths += result.verdict in (Verdict.CRASH, Verdict.TIMEOUT)
            state.left -= 1
            if state.left == 0:
                state.over.set()


class _Pair:
    """The session of one worker: kept while the definition stays."""

    def __init__(self, pool_bytes: int, workers: int, salt: int) -> None:
        self._pool_bytes = pool_bytes
        self._workers = workers
        self._salt = salt
        self._session: Session | None = None
        self._of: Job | None = None

    def session(self, job: Job) -> Session:
        """A session for a job, without the process of the job before."""
        before = self._of
        if before is not None and self._session is not None and before is not job:
            same = before.solution.definition == job.solution.definition
            if same and before.workloads == job.workloads:
                self._session.discard(before.solution.sha256)
            else:
                self.close()
        if self._session is None:
            definition = job.setting.catalog.resolve(job.solution.definition)
            self._session = Session(
                _for_pairs(job.setting, self._workers),
                definition,
                job.workloads,
                seed_salt=self._salt,
                pool_bytes=self._pool_bytes,
            )
        self._of = job
        return self._session

    def close(self) -> None:
        """Ends its processes."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _for_pairs(setting: Setting, workers: int) -> Setting:
    """As many threads for each of them as there are processors for it."""
    if workers < 2 or setting.target.kind != "cpu":
        return setting
    return replace(setting, threads=max(1, len(os.sched_getaffinity(0)) // workers))
