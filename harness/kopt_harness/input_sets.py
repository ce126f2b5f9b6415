"""Which input sets a session has, and which of them has been in which call.

The orchestrator's side: sets are numbers here, their contents are in the judge alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kopt_harness.outcome import CandidateFailedError
from kopt_harness.pools import PoolMemory
from kopt_harness.schema import Definition, Reason, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.workers import Workers

__all__ = ["InputSets"]

_EXPECTED_ITEM_BYTES = 4
"""Expected outputs are kept in float32."""


class InputSets:
    """The sets of all workloads, drawn by the judge as they are needed."""

    def __init__(
        self, setting: Setting, definition: Definition, workers: Workers, max_bytes: int | None
    ) -> None:
        """Draws nothing yet.

        Args:
            setting: Has the shelf, if there is one.
            definition: Of the workloads.
            workers: Of the session.
            max_bytes: Of what the judge keeps; None: by the memory that is free.
        """
        self._shelf = setting.shelf
        self._definition = definition
        self._workers = workers
        self._pools = PoolMemory(max_bytes)
        self._workload: Workload | None = None
        self._sets: dict[str, dict[str, list[int]]] = {}
        self._had_unused = False
        self._drawn = 0
        self._drawn_at: dict[tuple[str, int], int] = {}
        self._loaded_at: dict[str, int] = {}
        self._used: set[tuple[str, int]] = set()
        self._met: set[tuple[str, str, int]] = set()
        self.reference_s = 0.0
        """The longest that the reference took for a set of the current workload."""

    @property
    def workload(self) -> Workload:
        """The current one."""
        assert self._workload is not None, "no workload is bound"
        return self._workload

    def bind(self, workload: Workload) -> None:
        """Makes a workload the current one; does nothing if it is."""
        self._workers.judge()
        if self._workload != workload:
            for uuid in self._pools.enter(workload.uuid):
                self._forget(uuid)
            self._workers.ask_judge("workload", uuid=workload.uuid, axes=workload.axes)
            self._workload = workload
            self._had_unused = False
            self.reference_s = 0.0

    def pooled(self, generator: str, count: int, *, reference: bool, shelved: int) -> list[int]:
        """The first sets of a generator on the current workload; see ``Session.sets``."""
        known = self._sets.setdefault(self.workload.uuid, {}).setdefault(generator, [])
        while len(known) < count:
            place = len(known) if len(known) < shelved and self._may_shelve() else None
            known.append(self._draw(generator, reference=reference, place=place))
        return known[:count]

    def fresh(self, generator: str, *, reference: bool = True) -> int:
        """A set that no call has seen."""
        return self._draw(generator, reference=reference, place=None)

    def unused(self, generator: str) -> int | None:
        """A set that no call has seen, once for each visit of a workload; then None."""
        if self._had_unused:
            return None
        self._had_unused = True
        return self.fresh(generator)

    def renew(self) -> None:
        """Forgets every set, so that whoever is called next meets none that was used."""
        for uuid in self._pools.known():
            self._forget(uuid)
        self._workload = None

    def note_loaded(self, *sha256s: str) -> None:
        """Solutions are open: sets that are drawn from here on are new to them."""
        self._loaded_at |= dict.fromkeys(sha256s, self._drawn)
        self._had_unused = False

    def note_call(self, sha256: str, number: int) -> bool:
        """A solution is called with a set; whether the set was in a call before."""
        key = self.workload.uuid, number
        was_used = key in self._used
        self._used.add(key)
        self._met.add((sha256, *key))
        return was_used

    def note_restored(self, number: int) -> None:
        """The next call of a set is to have the very contents of the last one."""
        self._used.discard((self.workload.uuid, number))

    def fresh_for(self, sha256: str, generator: str, numbers: Sequence[int]) -> list[int]:
        """The same sets, the last replaced where all were drawn before a solution was loaded."""
        loaded = self._loaded_at[sha256]
        if any(self._drawn_at[self.workload.uuid, number] > loaded for number in numbers):
            return list(numbers)
        return [*numbers[:-1], self.fresh(generator)]

    def is_new_to(self, sha256: str, number: int) -> bool:
        """Whether a set of the current workload was in no call of a solution."""
        return (sha256, self.workload.uuid, number) not in self._met

    def _draw(self, generator: str, *, reference: bool, place: int | None) -> int:
        self._pools.add(self.workload.uuid, self._set_bytes(self.workload))
        answer = self._workers.ask_judge(
            "draw", generator=generator, reference=reference, place=place
        )
        if answer["invalid"]:
            reason = Reason.model_validate(answer["invalid"])
            raise CandidateFailedError(Verdict.INVALID, "check", reason)
        self.reference_s = max(self.reference_s, answer["reference_s"])
        number = int(answer["set"])
        self._drawn += 1
        key = self.workload.uuid, number
        self._drawn_at[key] = 0 if answer["met"] else self._drawn
        # One that was in a call of an earlier session is varied like one that was in this one's.
        (self._used.add if answer["met"] else self._used.discard)(key)
        self._met = {m for m in self._met if m[1:] != key}
        return number

    def _may_shelve(self) -> bool:
        """Whether a candidate is kept from the judge's files by more than good manners."""
        granted = self._workers.isolation.get("candidate", {})
        barriers = ("own_root", "landlock", "other_uid")
        return self._shelf is not None and any(granted.get(b) is True for b in barriers)

    def _forget(self, uuid: str) -> None:
        self._sets.pop(uuid, None)
        self._pools.drop(uuid)
        if self._workers.has_judge():
            self._workers.ask_judge("forget", uuid=uuid)

    def _set_bytes(self, workload: Workload) -> int:
        """What one set and its expected outputs take in the judge; static inputs are shared."""
        static = self._definition.kopt.static_inputs
        inputs = self._definition.input_shapes(workload.axes)
        outputs = self._definition.output_shapes(workload.axes)
        own = sum(shape.nbytes for shape in inputs if shape.name not in static)
        return own + sum(shape.numel * _EXPECTED_ITEM_BYTES for shape in outputs)
