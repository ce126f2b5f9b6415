"""One harness for all campaigns of an ablation.

Its processes stay warm from one campaign to the next. Profiles are evidence for the search and no
result: each is taken once. Where the plan says so, gates and sweeps of a pair are as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import GateResult, Profile, Solution, SweepResult, Validation, Workload

from ..harness import Harness

__all__ = ["SharedHarness"]


class SharedHarness:
    """Hands on to one harness, which is made when it is first needed; ``close`` leaves it open."""

    def __init__(
        self, target: str, make: Callable[[], Harness], ledger: Ledger, *, reuse: bool
    ) -> None:
        self.target = target
        self._make = make
        self._made: Harness | None = None
        self._ledger = ledger
        self._reuse = reuse

    @property
    def inner(self) -> Harness:
        """The one that measures."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def environment(self) -> dict[str, Any]:
        """Of the one that measures."""
        return self.inner.environment

    def profile(self, solution: Solution, workload: Workload, ledger: Ledger) -> Profile:
        """Once for all campaigns."""
        del ledger
        key = f"profile/{solution.sha256[:12]}/{workload.uuid}"

        def take() -> dict[str, Any]:
            found = self.inner.profile(solution, workload, self._ledger.scoped(f"units/{key}"))
            return found.model_dump(mode="json")

        return Profile.model_validate(recorded(self._ledger, key, take))

    def prepare(self, solutions: Sequence[Solution]) -> None:
        """Builds what has not been built; what is, is taken from the cache."""
        self.inner.prepare(solutions)

    def gate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> GateResult:
        """Once for each pair and set of workloads, where pairs are measured once."""
        if not self._reuse:
            return self.inner.gate(candidate, incumbent, workloads, ledger)
        key = self._key("gate", candidate, incumbent, workloads)

        def take() -> dict[str, Any]:
            units = self._ledger.scoped(f"units/{key}")
            return self.inner.gate(candidate, incumbent, workloads, units).model_dump(mode="json")

        return GateResult.model_validate(recorded(self._ledger, key, take))

    def sweep(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        distinct_inputs: int = 0,
    ) -> SweepResult:
        """Once for each pair and set of workloads, where pairs are measured once."""
        if not self._reuse:
            return self.inner.sweep(candidate, incumbent, workloads, ledger, distinct_inputs)
        key = self._key(f"sweep/{distinct_inputs}", candidate, incumbent, workloads)

        def take() -> dict[str, Any]:
            units = self._ledger.scoped(f"units/{key}")
            found = self.inner.sweep(candidate, incumbent, workloads, units, distinct_inputs)
            return found.model_dump(mode="json")

        return SweepResult.model_validate(recorded(self._ledger, key, take))

    def validate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> Validation:
        """Always anew."""
        return self.inner.validate(candidate, incumbent, workloads, ledger)

    def close(self) -> None:
        """Of a campaign: the next one goes on with it."""

    def end(self) -> None:
        """Of the ablation."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _key(
        self, what: str, candidate: Solution, incumbent: Solution, workloads: Sequence[Workload]
    ) -> str:
        uuids = "/".join(workload.uuid for workload in workloads)
        place = hashlib.sha256(uuids.encode()).hexdigest()[:12]
        epoch = self.environment["epoch"]
        return f"{what}/{candidate.sha256[:12]}/{incumbent.sha256[:12]}/{place}/{epoch}"
