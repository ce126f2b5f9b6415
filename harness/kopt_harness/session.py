"""One judge and its candidates, warm over all workloads of a definition on one device.

The orchestrator's side: no torch, no candidate code, no expected outputs. A session turns
calls into outcomes or verdicts (``calls``), and knows which input set has been in which call
(``input_sets``); what is measured when is decided above it, and ``workers`` keeps the processes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar

from kopt_harness.calls import Call, Calls
from kopt_harness.chance import Chance
from kopt_harness.input_sets import InputSets
from kopt_harness.layout import Arena
from kopt_harness.outcome import CallOutcome
from kopt_harness.schema import Definition, Phase, Reason, Solution, Workload
from kopt_harness.setting import Setting
from kopt_harness.worker.claims import ProfileClaim, read_claim
from kopt_harness.worker.spawn import Observer
from kopt_harness.worker.wire import WireError
from kopt_harness.workers import Workers

__all__ = ["Session"]


class Session:
    """Opens workers on first use; close it, or use it as a context manager."""

    _workers_type: ClassVar[type[Workers]] = Workers

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
        self._workers = self._workers_type(
            setting,
            definition,
            self._arena,
            salt=seed_salt,
            observer=observer,
            own_calls=own_calls,
        )
        self._inputs = InputSets(setting, definition, self._workers, pool_bytes)
        self._chance = Chance(setting.options.seed, self._arena, definition.kopt.static_inputs)
        # A GPU's caches are flushed by the timer, in the stream of the call.
        self._calls = Calls(self._workers, flushed_by_judge=setting.target.kind != "cuda")

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
        self._inputs.bind(workload)

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
        return self._inputs.pooled(generator, count, reference=reference, shelved=shelved)

    def fresh_set(self, generator: str, *, reference: bool = True) -> int:
        """A set that no call has seen."""
        return self._inputs.fresh(generator, reference=reference)

    def renew(self) -> None:
        """Forgets every set, so that whoever is called next meets none that was used."""
        self._inputs.renew()

    def fresh_for(self, sha256: str, generator: str, numbers: Sequence[int]) -> list[int]:
        """The same sets, the last replaced where all were drawn before a solution was loaded."""
        return self._inputs.fresh_for(sha256, generator, numbers)

    def is_new_to(self, sha256: str, number: int) -> bool:
        """Whether a set of the current workload was in no call of a solution."""
        return self._inputs.is_new_to(sha256, number)

    def unused_set(self, generator: str) -> int | None:
        """A set that no call has seen, once for each visit of a workload; then None."""
        return self._inputs.unused(generator)

    def start(self, solution: Solution, build_path: str) -> None:
        """Starts a solution's process, so that it is ready sooner when it is opened."""
        self._workers.start(solution, build_path)

    def open(self, solution: Solution, build_path: str) -> None:
        """Loads a solution in a process of its own; does nothing if it is warm.

        Raises: see ``open_all``.
        """
        self.open_all([(solution, build_path)])

    def open_all(
        self, solutions: Sequence[tuple[Solution, str]], *, ahead: int = 0, timed: bool = False
    ) -> None:
        """Loads solutions, each in a process of its own; those that are warm stay as they are.

        Args:
            solutions: each with the place of its build.
            ahead: so many further processes of each are opened with them, for the times that it
                is opened again.
            timed: whether they are for timed calls alone, so that their timer begins at once.

        Raises:
            CandidateFailedError: it cannot be loaded, or has tampered with its process.
            UnavailableError: the timer or its cache state is not to be had here.
        """
        by_sha = {each[0].sha256: each for each in solutions}
        cold = [each for sha, each in by_sha.items() if not self._workers.is_open(sha)]
        if not cold:
            return
        self._workers.open(*cold, ahead=ahead, timed=timed)
        self._inputs.note_loaded(*(solution.sha256 for solution, _ in cold))

    def keep_caches(self, sha256s: Collection[str]) -> None:
        """All processes of each of these trusted solutions share what libraries compile."""
        self._workers.keep_caches(sha256s)

    def prepare(self, solution: Solution, build_path: str) -> None:
        """Starts the process that a solution has after its present one is discarded."""
        self._workers.prepare(solution, build_path)

    def discard_ready(self) -> None:
        """Ends processes that were opened ahead and are not needed, and those set aside."""
        self._workers.discard_ready()

    def discard(self, *sha256s: str) -> None:
        """Kills the processes of solutions."""
        self._workers.discard(*sha256s)

    def require_still(self, sha256: str) -> None:
        """Ends a solution's process that ran while another solution was called.

        Raises:
            CandidateFailedError: it did.
        """
        self._workers.require_still(sha256)

    def set_aside(self, *sha256s: str) -> None:
        """Stops the processes of solutions for good; they are killed beside the next opening."""
        self._workers.set_aside(*sha256s)

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
        workload = self._inputs.workload
        asked = Call(
            sha256=sha256,
            workload=workload,
            number=number,
            phase=phase,
            timed=timed,
            full=full,
            shifts=shifts or dict.fromkeys(self._arena.by_name(), 0),
            times=calls,
            vary=self._inputs.note_call(sha256, number),
            timeout_s=self._call_timeout_s(),
        )
        return self._calls.make(asked)

    def held_to_contest(self, sha256s: frozenset[str]) -> AbstractContextManager[None]:
        """Within it these are libraries, and timed as they round: see ``Calls``."""
        return self._calls.held_to_contest(sha256s)

    def deviation(self, sha256: str) -> Reason | None:
        """The first that a tier has against such a solution so far."""
        return self._calls.deviation(sha256)

    def random_shifts(self, *, some: bool) -> dict[str, int]:
        """A new place for every tensor, or with ``some`` for a random part of them."""
        return self._chance.shifts(some=some)

    def single_shifts(self) -> list[dict[str, int]]:
        """New places for one tensor each, in random order; static inputs move together."""
        return self._chance.single_shifts()

    def choose(self, numbers: Sequence[int], count: int) -> list[int]:
        """``count`` sets in random order, each as often as the others up to one."""
        return self._chance.chosen(numbers, count)

    def profile(self, sha256: str, number: int, profiler: str) -> dict[str, Any]:
        """Runs one set under a profiler in the candidate's process.

        A profiler may take the activity records of its process from the timer for good:
        discard the process before it is timed.
        """
        workload = self._inputs.workload
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
            axes=workload.axes,
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

    def _call_timeout_s(self) -> float:
        return max(self._setting.options.call_timeout_s, 20 * self._inputs.reference_s)
