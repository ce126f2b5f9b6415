"""Sweeps of several solutions on all devices of a target: the local executor.

A solution is checked and timed on one device, so that everything that is compared was measured
there; several devices take solutions in turn and wait for nobody. With more workers than one a
device's pairs check everything first (``fleet.py``), and it times alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple

from kopt_harness.attempts import trying_again
from kopt_harness.errors import StoppedError, TransientError
from kopt_harness.fleet import Checked, Fleet, GuardedLedger, Job
from kopt_harness.ledger import Ledger
from kopt_harness.schema import Solution, SweepResult, Workload, WorkloadResult
from kopt_harness.setting import Setting
from kopt_harness.sweep import for_sweep, sweep
from kopt_harness.watch import Watch

__all__ = ["Request", "Swept", "devices_for", "sweep_all"]

Swept = Callable[["Request", SweepResult], None]


class Request(NamedTuple):
    """One solution to sweep."""

    setting: Setting
    """With the device that it is measured on."""
    candidate: Solution
    incumbent: Solution | None
    workloads: Sequence[Workload]
    ledger: Ledger


_Named = tuple[str, list[Request]]


def devices_for(setting: Setting, solutions: int) -> list[Setting]:
    """A setting for each of so many solutions: devices in turn, workers shared out.

    Args:
        setting: Whose ``workers`` count over all devices.
        solutions: How many there are.
    """
    workers = setting.options.workers
    used = setting.on_each_device()[: max(1, min(workers, solutions))]
    shares = [workers // len(used) + (place < workers % len(used)) for place in range(len(used))]
    each = [
        replace(device, options=device.options.model_copy(update={"workers": share}))
        for device, share in zip(used, shares, strict=True)
    ]
    return [each[number % len(each)] for number in range(solutions)]


def sweep_all(
    requests: Sequence[Request],
    *,
    watch: Watch,
    checked: Checked,
    swept: Swept,
) -> list[SweepResult]:
    """Sweeps all of them; results in the order of the requests.

    Args:
        requests: On one or more devices.
        watch: Is told what everybody does.
        checked: Called after each workload, in whatever thread.
        swept: Called after each solution, in whatever thread.

    Raises:
        InfraError: The machine failed, also when tried again; what is complete is in the ledger.
    """
    lines: dict[str, list[Request]] = {}
    for request in requests:
        lines.setdefault(request.setting.device_id, []).append(request)
    stop = threading.Event()

    def run(line: _Named) -> list[SweepResult]:
        name, mine = line
        shown = f"{name} " if len(lines) > 1 else ""
        one_line = _Line(shown, mine, watch=watch, checked=checked, swept=swept, stop=stop)
        return one_line.run()

    if len(lines) <= 1:
        found = [run(line) for line in lines.items()]
    else:
        found = _side_by_side(run, list(lines.items()), stop)
    results = {
        id(request): result
        for mine, done in zip(lines.values(), found, strict=True)
        for request, result in zip(mine, done, strict=True)
    }
    return [results[id(request)] for request in requests]


def _side_by_side(
    run: Callable[[_Named], list[SweepResult]], lines: Sequence[_Named], stop: threading.Event
) -> list[list[SweepResult]]:
    """All lines in threads of their own; the failure of one stops the others."""
    with ThreadPoolExecutor(len(lines)) as pool:
        try:
            running = [pool.submit(run, line) for line in lines]
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            if not all(each.done() and each.exception() is None for each in running):
                stop.set()
    errors = [error for each in running if (error := each.exception()) is not None]
    for error in errors:
        if not isinstance(error, StoppedError):
            raise error
    return [each.result() for each in running]


class _Line:
    """What one device has to do."""

    def __init__(
        self,
        name: str,
        requests: Sequence[Request],
        *,
        watch: Watch,
        checked: Checked,
        swept: Swept,
        stop: threading.Event,
    ) -> None:
        self._name = name
        self._requests = requests
        self._watch = watch
        self._checked = checked
        self._swept = swept
        self._stop = stop

    def run(self) -> list[SweepResult]:
        """One after the other, checked ahead where there is more than one worker."""
        setting = self._requests[0].setting
        if setting.options.workers < 2:
            return [self._sweep(each, say=True) for each in self._requests]
        jobs = [
            Job(
                for_sweep(each.setting, each.workloads), each.candidate, each.workloads, each.ledger
            )
            for each in self._requests
        ]
        with Fleet(
            jobs, watch=self._watch, checked=self._checked, name=self._name, stop=self._stop
        ) as fleet:
            # What a check runs would take the device, or caches, from what is being timed.
            fleet.wait()
        return [self._sweep(each, say=False) for each in self._requests]

    def _sweep(self, request: Request, *, say: bool) -> SweepResult:
        """Checks what is not in the ledger, times, compares."""
        setting = request.setting
        one = setting.options.model_copy(update={"workers": 1})
        worker = f"{self._name}{'worker 1' if say else 'timing'}"
        name, known = request.candidate.name, set[str]()

        def progress(workload: Workload, result: WorkloadResult) -> None:
            self._watch.work(worker, f"{name}, after workload {workload.index}")
            if say and workload.uuid not in known:
                known.add(workload.uuid)
                self._watch.done(result.verdict)
                self._checked(request.candidate, workload, result)

        def failed(_: TransientError) -> None:
            self._watch.retried()

        def work() -> SweepResult:
            self._watch.work(worker, name)
            return sweep(
                replace(setting, options=one),
                request.candidate,
                request.incumbent,
                request.workloads,
                GuardedLedger(request.ledger, self._stop),
                progress=progress,
            )

        result = trying_again(work, failed)
        self._watch.work(worker, "")
        self._swept(request, result)
        return result
