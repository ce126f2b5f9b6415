"""A session with a witness: a third process that digests what lies in the arena.

What replay says of its inputs (all distinct) and of repeated calls (the same bits, or not)
rests on these digests. The witness starts when it is first asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kopt_harness.activity import cpu_use
from kopt_harness.outcome import CallOutcome, judge_failed
from kopt_harness.schema import Definition, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.worker.spawn import WorkerClient, WorkerFailedError
from kopt_harness.workers import Workers

__all__ = ["WatchedSession"]

_TIMEOUT_S = 120.0


class _WatchedWorkers(Workers):
    """A judge, candidates, and a witness."""

    _witness: WorkerClient | None = None

    def digest(self, **fields: Any) -> str:
        """What the witness answers; needs an open judge.

        Raises:
            KoptError: the witness failed.
        """
        try:
            answer = self._opened().request("digest", timeout_s=_TIMEOUT_S, **fields)
        except WorkerFailedError as error:
            raise judge_failed("the witness failed", error) from error
        return str(answer["digest"])

    def close(self) -> None:
        """Ends all of them."""
        if self._witness is not None:
            self._retire(self._witness)
            self._witness = None
        super().close()

    def _opened(self) -> WorkerClient:
        if self._witness is None:
            self._witness = self._client("witness")
            fields = {"export": self._export, **self._device_fields()}
            opened = self._witness.request("open", timeout_s=_TIMEOUT_S, **fields)
            self.isolation["witness"] = opened["isolation"]
        return self._witness


class WatchedSession(Session):
    """Knows what the last call was given and what it left, by digest."""

    _workers_type = _WatchedWorkers

    def __init__(
        self, setting: Setting, definition: Definition, workloads: Sequence[Workload]
    ) -> None:
        super().__init__(setting, definition, workloads)
        assert isinstance(self._workers, _WatchedWorkers)
        self._watched_workers = self._workers
        self._places: dict[str, int] | None = None

    def call(
        self,
        sha256: str,
        number: int,
        *,
        shifts: dict[str, int] | None = None,
        **options: Any,
    ) -> CallOutcome:
        """As in a session without a witness; remembers where the tensors lie."""
        self._places = shifts
        return super().call(sha256, number, shifts=shifts, **options)

    def call_again(self, number: int) -> None:
        """Lets the next call of a set have the very contents of the last one."""
        self._inputs.note_restored(number)

    def judge_cpu_ns(self) -> int:
        """Processor time of the judge so far; other work on the machine does not count."""
        return sum(cpu_use([self._workers.judge().pid]).values())

    def inputs_digest(self) -> str:
        """Of inputs that differ between sets: none that is static, mutable or may be left out."""
        kopt = self.definition.kopt
        left_out = {*kopt.static_inputs, *kopt.mutable_inputs}
        return self._digest(
            [
                name
                for name, spec in self.definition.inputs.items()
                if spec.shape is not None and not spec.optional and name not in left_out
            ]
        )

    def outputs_digest(self) -> str:
        """Of all outputs, to the last bit."""
        return self._digest(list(self.definition.outputs))

    def _digest(self, names: Sequence[str]) -> str:
        return self._watched_workers.digest(
            names=names,
            axes=self._inputs.workload.axes,
            shifts=self._places or dict.fromkeys(self._arena.by_name(), 0),
        )
