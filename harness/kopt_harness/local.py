"""The harness on this machine, as the controller sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kopt_harness.ahead import build_ahead
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import build, solution_ref
from kopt_harness.gate import gate
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.observed_profile import profile_observed
from kopt_harness.options import MeasureOptions
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.profile import is_external, read_calls, reads_builds, reads_calls
from kopt_harness.profile_diagnosis import diagnosed
from kopt_harness.profiled import profile_build
from kopt_harness.root import Root
from kopt_harness.schema import (
    GateResult,
    Profile,
    Solution,
    SweepResult,
    Validation,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.validate import validate

__all__ = ["LocalHarness"]

CENSUS_CALLS = 5
"""Timed calls that a census is taken of."""


class LocalHarness:
    """Keeps one warm session for each definition, large enough for all its workloads."""

    def __init__(
        self,
        root: Root,
        catalog: Catalog,
        target: str,
        options: MeasureOptions,
        *,
        profiler: str = "torch",
        notify: Callable[[str], None] | None = None,
    ) -> None:
        del root
        self._setting = Setting.here(catalog, target, options)
        self._profiler = profiler
        self._notify = notify or _say_nothing
        self._sessions: dict[str, Session] = {}
        self._profiled: set[str] = set()
        self.target = target

    @property
    def environment(self) -> dict[str, Any]:
        """What results depend on; ``epoch`` names the state of the device."""
        return self._setting.environment

    def profile(self, solution: Solution, workload: Workload, ledger: Ledger) -> Profile:
        """Profiles one call; a ledger unit."""
        key = f"profile/{solution.sha256[:12]}/{workload.uuid}/{self._profiler}"
        record = ledger.get(key)
        if record is None:
            record = self._profile(solution, workload).model_dump(mode="json")
            ledger.put(key, record)
        return Profile.model_validate(record)

    def prepare(self, solutions: Sequence[Solution]) -> None:
        """Builds them side by side."""
        self._notify(f"build: {', '.join(solution.name for solution in solutions)}")
        build_ahead(self._setting, solutions)

    def gate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> GateResult:
        """See ``kopt_harness.gate``."""
        session = self._session_to_time(candidate)
        self._notify(f"gate: {candidate.name} on {_counted(workloads)}")
        try:
            return gate(self._setting, candidate, incumbent, workloads, ledger, session=session)
        finally:
            if candidate.sha256 != incumbent.sha256:
                session.discard(candidate.sha256)

    def sweep(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        distinct_inputs: int = 0,
    ) -> SweepResult:
        """See ``kopt_harness.sweep``."""
        self._notify(f"sweep: {candidate.name} on {_counted(workloads)}")

        found = sweep(
            self._setting,
            candidate,
            incumbent,
            workloads,
            ledger,
            session=self._session_to_time(candidate),
            distinct_inputs=distinct_inputs,
        )
        if found.comparison is None:
            return found
        built = build(self._setting, candidate).model_copy(update={"log": "", "path": ""})
        return found.model_copy(update={"built": built})

    def validate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> Validation:
        """See ``kopt_harness.validate``; ends all processes that have measured before."""
        self._notify(f"validation: {candidate.name} rebuilt, on {_counted(workloads)}")
        self.close()
        return validate(self._setting, candidate, incumbent, workloads, ledger)

    def close(self) -> None:
        """Ends all workers."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._profiled.clear()

    @property
    def phases_ns(self) -> dict[str, int]:
        """Wall time by phase over all sessions."""
        total: dict[str, int] = {}
        for session in self._sessions.values():
            for name, ns in session.phases_ns.items():
                total[name] = total.get(name, 0) + ns
        return total

    def _session_to_time(self, solution: Solution) -> Session:
        """The session, without processes in which a profiler has been."""
        session = self._session(solution)
        while self._profiled:
            session.discard(self._profiled.pop())
        return session

    def _session(self, solution: Solution) -> Session:
        catalog = self._setting.catalog
        definition = catalog.resolve(solution.definition)
        if definition.name not in self._sessions:
            workloads = catalog.workloads(definition)
            self._sessions[definition.name] = Session(self._setting, definition, workloads)
        return self._sessions[definition.name]

    def _profile(self, solution: Solution, workload: Workload) -> Profile:
        self._notify(f"profile: {solution.name}, workload {workload.index}")
        if reads_builds(self._profiler):
            return profile_build(self._setting, solution, workload, self._profiler)
        try:
            if reads_calls(self._profiler):
                found = self._timed_calls(solution, workload)
            elif is_external(self._profiler):
                built = build(self._setting, solution)
                found = profile_observed(self._setting, solution, built, workload, self._profiler)
            else:
                found = self._profiled_call(solution, workload)
        except CandidateFailedError as error:
            # Its verdict is for a check; a state can be derived without a profile.
            note = f"{error.verdict.value} under the profiler: {error.reason.detail}"
            found = {"total_us": None, "launches": None, "notes": (note,)}
        found = diagnosed(found, on_device=self._setting.target.kind != "cpu")
        return Profile(
            profiler=self._profiler,
            solution=solution_ref(solution),
            target=self.target,
            uuid=workload.uuid,
            axes=workload.axes,
            **found,
        )

    def _timed_calls(self, solution: Solution, workload: Workload) -> dict[str, Any]:
        """What the timer knows of a few calls, the first one left out."""
        session = self._session_to_time(solution)
        built = build(self._setting, solution)
        session.bind(workload)
        session.open(solution, built.path)
        numbers = session.sets(next(iter(session.generators)), 1)
        session.call(solution.sha256, numbers[0], phase="check", timed=False, full=False)
        details = []
        with device_lease(self._setting.device_id):
            for number in session.choose(numbers, CENSUS_CALLS):
                outcome = session.call(
                    solution.sha256, number, phase="bench", timed=True, full=False
                )
                details.append(outcome.details)
        if any("launches" not in each for each in details):
            raise UnavailableError(
                f"the timer {self._setting.timer!r} keeps no record of what runs",
                hint="use a GPU target with its own timer, or --profiler torch",
            )
        return read_calls(self._profiler, details)

    def _profiled_call(self, solution: Solution, workload: Workload) -> dict[str, Any]:
        session = self._session(solution)
        built = build(self._setting, solution)
        if solution.sha256 not in self._profiled:
            # Its timer may be recording, and would leave nothing to a profiler.
            session.discard(solution.sha256)
            session.start(solution, built.path)  # it loads PyTorch while the judge does
        session.bind(workload)
        session.open(solution, built.path)
        self._profiled.add(solution.sha256)
        number = session.sets(next(iter(session.generators)), 1, reference=False)[0]
        return session.profile(solution.sha256, number, self._profiler)


def _say_nothing(text: str) -> None:
    """Progress goes nowhere."""


def _counted(workloads: Sequence[Workload]) -> str:
    return "1 workload" if len(workloads) == 1 else f"{len(workloads)} workloads"
