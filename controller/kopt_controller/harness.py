"""What the controller needs of the half that measures.

``kopt_harness.local.LocalHarness`` is the real one; ``simulated.SimulatedHarness`` ships
beside it, so that the loop runs without any hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from kopt_harness.errors import InvalidInputError
from kopt_harness.ledger import Ledger
from kopt_harness.profile import profiler_names, reads_builds
from kopt_harness.schema import GateResult, Profile, Solution, SweepResult, Validation, Workload

__all__ = ["Harness", "check_profiler"]


@runtime_checkable
class Harness(Protocol):
    """Measures solutions on one target; every completed unit goes through the ledger."""

    target: str

    @property
    def environment(self) -> dict[str, Any]:
        """JSON-able; ``epoch`` names the state of the device. See DESIGN section 1."""
        ...

    def profile(self, solution: Solution, workload: Workload, ledger: Ledger) -> Profile:
        """Profiles one solution on one workload."""
        ...

    def prepare(self, solutions: Sequence[Solution]) -> None:
        """Does side by side what needs no device of its own, before any of them is measured.

        What goes wrong with one of them is said when that one is measured.
        """
        ...

    def gate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> GateResult:
        """Builds, checks and times a candidate against the incumbent on representatives."""
        ...

    def sweep(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        distinct_inputs: int = 0,
    ) -> SweepResult:
        """The same on every workload, with full correctness.

        Args:
            candidate: What is swept.
            incumbent: What it is compared with.
            workloads: All of the definition, for a sweep that can promote.
            ledger: Completed units.
            distinct_inputs: Input sets over all workloads at least.
        """
        ...

    def validate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> Validation:
        """Builds archived bytes in an empty cache and judges them in processes of their own."""
        ...

    def close(self) -> None:
        """Ends worker processes; may be called twice."""
        ...


def check_profiler(name: str) -> None:
    """Refuses a profiler from which no state can be derived, before a campaign begins.

    Raises:
        NotFoundError: If there is none of that name.
        InvalidInputError: If it watches nothing run.
    """
    if reads_builds(name):
        fitting = ", ".join(each for each in profiler_names() if not reads_builds(each))
        raise InvalidInputError(
            f"the profiler {name!r} sees nothing run, and a state is of what runs",
            hint=f"profiler is one of {fitting}",
        )
