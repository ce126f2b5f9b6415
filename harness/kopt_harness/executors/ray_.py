"""Ray: the same sweep on a cluster, or on workers that Ray starts on this machine.

Ray places, starts and loses processes; kopt writes no scheduler. A node offers its devices of a
target as the resource ``kopt_TARGET`` (one for each device). A solution that is timed is one task
that takes a whole device, so that everything that is compared was measured there. What is only
checked is cut into batches of workloads, each of which takes half a device. The journal stays
here: nodes send every record as soon as it is complete, and a task that was lost is sent again
with what it had found. Ray itself retries nothing.
"""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kopt_harness import errors
from kopt_harness.attempts import trying_again
from kopt_harness.errors import (
    InfraError,
    KoptError,
    StoppedError,
    TransientError,
    UnavailableError,
)
from kopt_harness.evaluate import MAX_DEATHS
from kopt_harness.fleet import Checked
from kopt_harness.ledger import Kept
from kopt_harness.schema import SweepResult, Verdict, WorkloadResult
from kopt_harness.setting import Setting
from kopt_harness.targets import get_target
from kopt_harness.watch import Watch

from .merge import merged
from .node import Message, pack_piece, work_on
from .protocol import Place, Swept, Work

__all__ = ["RayExecutor", "create"]

_CHECK_SHARE = 0.5
"""Of a device, for a task that times nothing."""
_BATCHES_PER_WORKER = 2
"""So that nobody waits long for the last; each batch starts processes of its own."""
_ANSWER_S = 10.0
_STORE_BYTES = 128 << 20
"""Of Ray's memory for objects on this machine alone; messages are small."""


def create(place: Place) -> RayExecutor:
    """An executor that is connected to its cluster.

    Raises:
        UnavailableError: Ray is not installed, there is no such cluster, or no node of it has
            the target.
        InfraError: Ray could not start on this machine.
    """
    try:
        ray: Any = importlib.import_module("ray")  # an extra, and slow to load
    except ImportError as error:
        raise UnavailableError(
            f"the executor ray needs the package ray: {error}", hint="pip install -e '.[ray]'"
        ) from error
    target = get_target(place.target)
    setting = Setting(place.catalog, target, place.options)
    resource = f"kopt_{target.name}"
    held = ExitStack()
    # Ray's threads print what happens to nodes; standard output belongs to the result.
    held.enter_context(redirect_stdout(sys.stderr))
    held.callback(ray.shutdown)
    try:
        setting = _connect(ray, place, setting, resource)
        if not ray.cluster_resources().get(resource):
            raise UnavailableError(
                f"no node of the cluster offers {resource!r}",
                hint=f"give a node that has it: ray start --resources '{{\"{resource}\": 1}}'",
            )
    except BaseException as error:
        held.close()
        if type(error) is Exception:  # all that Ray raises where its processes do not start
            raise InfraError(
                f"Ray did not start: {_first_line(error)}",
                hint="try again when the machine is less busy",
            ) from error
        raise
    return RayExecutor(setting, ray, resource, held)


def _connect(ray: Any, place: Place, setting: Setting, resource: str) -> Setting:
    """Joins the cluster, or starts one on this machine, which must then have the target."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if place.address is not None:
            _require_answer(place.address)
            ray.init(address=place.address, **quiet)
            return setting
        setting = Setting.here(place.catalog, place.target, place.options)
        ray.init(
            address="local",
            num_cpus=place.options.workers,
            resources={resource: len(setting.target.each())},
            object_store_memory=_STORE_BYTES,
            include_dashboard=False,
            **quiet,
        )
    except (OSError, RuntimeError, ValueError) as error:
        where = "this machine" if place.address is None else repr(place.address)
        raise UnavailableError(
            f"no Ray cluster at {where}: {_first_line(error)}",
            hint="start one with ray start --head, or leave --address out",
        ) from error
    return setting


def _require_answer(address: str) -> None:
    """Fails at once where nothing listens; Ray would wait for minutes.

    Raises:
        OSError: Nobody answers at ``host:port``.
    """
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()


class _Piece(NamedTuple):
    """What one task does: all of a solution, or a batch of its workloads."""

    order: _Order
    work: Work
    name: str


@dataclass
class _Order:
    """A solution, and what came of its pieces."""

    work: Work
    is_timed: bool
    pieces: int = 0
    deaths: int = 0
    found: list[SweepResult] = field(default_factory=list)


class RayExecutor:
    """Use ``close`` at the end: it leaves the cluster, and ends one that was started for it."""

    def __init__(self, setting: Setting, ray: Any, resource: str, held: ExitStack) -> None:
        self.setting = setting
        self._held = held
        self._ray = ray
        self._resource = resource
        # Ray gives a task its GPU by the environment, which a process looks at once.
        once = {"max_calls": 1} if setting.target.kind == "cuda" else {}
        self._task = ray.remote(max_retries=0, num_returns="streaming", **once)(work_on)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._running: set[Any] = set()

    def close(self) -> None:
        """Leaves the cluster."""
        self._held.close()

    def sweep(
        self, works: Sequence[Work], ledger: Kept, *, watch: Watch, checked: Checked, swept: Swept
    ) -> list[SweepResult]:
        """See ``Executor``; as many tasks at once as there are workers."""
        orders = [self._order(work) for work in works]
        waiting = deque(piece for order in orders for piece in self._pieces(order))
        desk = _Desk(ledger, watch, checked, swept)

        def serve(number: int) -> None:
            while (piece := self._next(waiting)) is not None:
                self._do(piece, desk, f"worker {number + 1}")

        workers = max(1, min(self.setting.options.workers, len(waiting)))
        with ThreadPoolExecutor(workers) as pool:
            running = [pool.submit(serve, number) for number in range(workers)]
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:
                if not all(each.done() and each.exception() is None for each in running):
                    self._halt()
        _raise_first(running)
        return [merged(order.work, order.found) for order in orders]

    def _order(self, work: Work) -> _Order:
        is_timed = work.incumbent is not None or bool(self.setting.options.baselines)
        return _Order(work, is_timed)

    def _pieces(self, order: _Order) -> Iterator[_Piece]:
        work = order.work
        batches = [list(work.workloads)]
        if not order.is_timed:
            count = min(len(work.workloads), _BATCHES_PER_WORKER * self.setting.options.workers)
            # In turn: neighbours are of like size, and each batch gets some of every size.
            batches = [list(work.workloads[start::count]) for start in range(count)]
        order.pieces = len(batches)
        for number, batch in enumerate(batches, 1):
            name = work.candidate.name
            shown = name if len(batches) == 1 else f"{name}, batch {number} of {len(batches)}"
            yield _Piece(order, work._replace(workloads=batch), shown)

    def _next(self, waiting: deque[_Piece]) -> _Piece | None:
        """The next piece of a solution that has not failed too often."""
        with self._lock:
            while waiting and not self._stop.is_set():
                piece = waiting.popleft()
                if piece.order.deaths < MAX_DEATHS:
                    return piece
        return None

    def _do(self, piece: _Piece, desk: _Desk, worker: str) -> None:
        known: set[str] = set()

        def once() -> SweepResult:
            desk.watch.work(worker, piece.name)
            return self._run(piece, desk, known)

        def failed(_: TransientError) -> None:
            if self._stop.is_set():
                raise StoppedError("the sweep was stopped")
            desk.watch.retried()

        try:
            result = trying_again(once, failed)
        finally:
            desk.watch.work(worker, "")
        order = piece.order
        with self._lock:
            order.found.append(result)
            order.deaths += _deaths(result)
            whole = merged(order.work, order.found)
        if len(order.found) == order.pieces or order.deaths >= MAX_DEATHS:
            desk.conclude(order.work, whole)

    def _run(self, piece: _Piece, desk: _Desk, seen: set[str]) -> SweepResult:
        """One try of a task, to its result."""
        payload = pack_piece(
            self.setting.catalog,
            self.setting.target.name,
            self.setting.options.model_copy(update={"workers": 1}),
            piece.work,
            desk.known(piece.work),
        )
        share = 1.0 if piece.order.is_timed else _CHECK_SHARE
        on_gpu = {"num_gpus": share} if self.setting.target.kind == "cuda" else {}
        task = self._task.options(num_cpus=share, resources={self._resource: share}, **on_gpu)
        messages = task.remote(payload)
        with self._lock:
            self._running.add(messages)
        try:
            for reference in messages:
                message: Message = self._ray.get(reference)
                result = desk.take(piece.work, message, seen)
                if result is not None:
                    return result
        except self._ray.exceptions.RayError as error:
            if self._stop.is_set():
                raise StoppedError("the sweep was stopped") from None
            if isinstance(error, self._ray.exceptions.RayTaskError):
                raise InfraError(
                    f"a task of the cluster failed: {str(error).strip().splitlines()[-1]}",
                    hint="see the node's log",
                ) from error
            raise TransientError(
                f"a worker of the cluster was lost: {_first_line(error)}",
                hint="try again; ray status shows the nodes",
            ) from error
        finally:
            with self._lock:
                self._running.discard(messages)
        raise TransientError("a task ended without a result", hint="try again")

    def _halt(self) -> None:
        """Ends all tasks; what was not complete is not recorded."""
        self._stop.set()
        with self._lock:
            running = list(self._running)
        for messages in running:
            with suppress(self._ray.exceptions.RayError, ValueError, TypeError):
                self._ray.cancel(messages, force=True)


class _Desk:
    """Where messages of all tasks arrive: the ledger and the callbacks of this process."""

    def __init__(self, ledger: Kept, watch: Watch, checked: Checked, swept: Swept) -> None:
        self.watch = watch
        self._lock = threading.RLock()
        self._ledger = ledger
        self._checked = checked
        self._swept = swept

    def conclude(self, work: Work, result: SweepResult) -> None:
        """Says what came of a solution; batches under way may still add to it."""
        with self._lock:
            self._swept(work, result)

    def known(self, work: Work) -> dict[str, dict[str, Any]]:
        """What is complete of a solution, by whatever machine; each looks for its own."""
        mark = work.candidate.sha256[:12]
        with self._lock:
            keys = [key for key in self._ledger.completed() if mark in key or key.endswith("/node")]
            values = {key: self._ledger.get(key) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def take(self, work: Work, message: Message, seen: set[str]) -> SweepResult | None:
        """Writes a message down; the result where it is the last one.

        Raises:
            KoptError: The node says that it cannot go on.
        """
        kind = message["kind"]
        if kind == "error":
            raise _error(message)
        if kind == "result":
            return SweepResult.model_validate(message["value"])
        with self._lock:
            if kind == "record":
                # Two batches of a solution may both be the first to say what holds for it.
                if self._ledger.get(message["key"]) is None:
                    self._ledger.put(message["key"], message["value"])
                return None
            row = WorkloadResult.model_validate(message["value"])
            if row.uuid not in seen:
                seen.add(row.uuid)
                workload = next(each for each in work.workloads if each.uuid == row.uuid)
                self.watch.done(row.verdict)
                self._checked(work.candidate, workload, row)
        return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _deaths(result: SweepResult) -> int:
    """Crashes and timeouts; as many as are allowed where nothing could be built."""
    evaluation = result.evaluation
    if not evaluation.workloads and evaluation.verdict != Verdict.PASS:
        return MAX_DEATHS
    return sum(row.verdict in (Verdict.CRASH, Verdict.TIMEOUT) for row in evaluation.workloads)


def _error(message: Message) -> KoptError:
    """The error of a node, as if it had happened here."""
    kind = getattr(errors, message["type"], InfraError)
    if not (isinstance(kind, type) and issubclass(kind, KoptError)):
        kind = InfraError
    found: KoptError = kind(message["message"], hint=message["hint"])
    return found


def _raise_first(running: Sequence[Future[None]]) -> None:
    """The error that stopped the others, not one of those that it stopped."""
    found = [error for each in running if (error := each.exception()) is not None]
    for error in found:
        if not isinstance(error, StoppedError):
            raise error
    if found:
        raise found[0]
