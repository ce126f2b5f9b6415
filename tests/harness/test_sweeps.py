"""Several solutions on several devices: shared out, kept apart, and stopped together."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InfraError
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Solution, SweepResult, Verdict
from kopt_harness.setting import Setting
from kopt_harness.sweeps import Request, devices_for, sweep_all
from kopt_harness.targets.cpu import CpuTarget
from kopt_harness.targets.protocol import Presence, Target
from kopt_harness.watch import Watch, progress_lines
from kopt_harness.worker import forkserver

OPTIONS = MeasureOptions(trials=1, pool=1, sweep_stress_sets=0)


@dataclasses.dataclass(frozen=True)
class Several(CpuTarget):
    """This processor, as if there were three of it."""

    bound: str = ""

    def each(self) -> tuple[Target, ...]:
        """Each with an id of its own, by which leases go."""
        return tuple(dataclasses.replace(self, bound=f"CPU-{n}") for n in range(3))

    def present(self) -> Presence:
        """The one that it is bound to."""
        return Presence(True, "present", "a processor", self.bound or "CPU-0", 0)


class Broken(DictLedger):
    """A disk that refuses the second record."""

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps one."""
        if self.completed():
            raise InfraError("the disk is full")
        super().put(key, value)


@pytest.fixture
def several(catalog: Catalog) -> Callable[[int], Setting]:
    """A setting with so many workers."""
    return lambda workers: Setting(
        catalog, Several(), OPTIONS.model_copy(update={"workers": workers})
    )


@pytest.mark.parametrize(
    ("workers", "solutions", "shares"),
    [
        (1, 3, [("CPU-0", 1)] * 3),
        (2, 1, [("CPU-0", 2)]),
        (2, 3, [("CPU-0", 1), ("CPU-1", 1), ("CPU-0", 1)]),
        (7, 4, [("CPU-0", 3), ("CPU-1", 2), ("CPU-2", 2), ("CPU-0", 3)]),
    ],
)
def test_devices_take_solutions_in_turn(several, workers, solutions, shares) -> None:
    """Never more workers than asked for, and no device without one."""
    found = devices_for(several(workers), solutions)
    assert [(each.device_id, each.options.workers) for each in found] == shares
    assert found[0].worker_variables["CUDA_VISIBLE_DEVICES"] == "CPU-0"


def requests(
    setting: Setting, solutions: list[Solution], ledgers: list[DictLedger]
) -> list[Request]:
    """Three small workloads for each."""
    catalog = setting.catalog
    workloads = [catalog.workloads(catalog.resolve("gdn_decode"))[n] for n in (0, 1, 10)]
    settings = devices_for(setting, len(solutions))
    return [
        Request(each, solution, None, workloads, ledger)
        for each, solution, ledger in zip(settings, solutions, ledgers, strict=True)
    ]


def test_every_device_sweeps_its_own(several, make_solution, honest) -> None:
    """Results in the order of the requests, whoever was done first; all workloads once."""
    wrong = make_solution(honest + "    output[0] = 0\n", name="wrong")
    broken = make_solution("def run(:\n", name="broken")
    solutions = [make_solution(honest + f"\n# {n}\n", name=f"s{n}") for n in "ab"]
    solutions[1:1] = [wrong, broken]
    ledgers = [DictLedger() for _ in solutions]
    watch, lock = Watch(12), threading.Lock()
    seen: list[tuple[str, int]] = []
    swept: list[str] = []

    def checked(solution: Solution, workload: Any, _: Any) -> None:
        with lock:
            seen.append((solution.name, workload.index))

    def done(request: Request, _: SweepResult) -> None:
        with lock:
            swept.append(request.candidate.name)

    found = sweep_all(
        requests(several(5), solutions, ledgers), watch=watch, checked=checked, swept=done
    )
    assert [each.evaluation.solution.name for each in found] == [s.name for s in solutions]
    verdicts = [each.evaluation.verdict for each in found]
    assert verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.CRASH, Verdict.PASS]
    assert [each.evaluation.environment["gpu_uuid"] for each in found][:2] == ["CPU-0", "CPU-1"]
    assert sorted(seen) == sorted((n, w) for n in ("sa", "wrong", "sb") for w in (0, 1, 10))
    assert sorted(swept) == sorted(s.name for s in solutions)
    document = watch.document()
    assert (document["done"], document["failed"]) == (9, 3)
    lines = progress_lines(document)
    assert any(line.startswith("CPU-1 worker") for line in lines)
    assert lines[-1].startswith("9 done, 3 failed, 3 left of 12")


def test_the_failure_of_one_device_ends_the_others(several, make_solution, honest) -> None:
    """With its own error; what others had not completed is not recorded."""
    slow = honest + "    import time; time.sleep(1.5)\n"
    solutions = [make_solution(slow, name="slow"), make_solution(honest, name="unlucky")]
    ledgers = [DictLedger(), Broken()]
    with pytest.raises(InfraError, match="the disk is full"):
        sweep_all(
            requests(several(2), solutions, ledgers),
            watch=Watch(6),
            checked=lambda *_: None,
            swept=lambda *_: None,
        )
    assert len(ledgers[1].completed()) == 1
    assert sum(key.startswith("check/") for key in ledgers[0].completed()) < 3


def test_a_candidate_that_ends_with_its_server_is_judged_again(
    catalog: Catalog, make_solution, honest
) -> None:
    """Nobody in a sandbox reaches the process that forks workers: its end blames no candidate."""
    forkserver.close_servers()
    setting = Setting.here(catalog, "cpu", OPTIONS)
    watch = Watch(3)
    slow = make_solution(honest + "    import time; time.sleep(0.7)\n", name="slow")
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 30
        while not killed and time.monotonic() < deadline:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    if "kopt-worker-candidate-" in words and ledger.completed():
                        server = process.parent()
                        while server is not None and "_forkserver" not in " ".join(
                            server.cmdline()
                        ):
                            server = server.parent()
                        assert server is not None
                        server.kill()
                        killed.append(server.pid)
                        return
            time.sleep(0.01)

    ledger = DictLedger()
    killer = threading.Thread(target=kill)
    killer.start()
    (found,) = sweep_all(
        requests(setting, [slow], [ledger]),
        watch=watch,
        checked=lambda *_: None,
        swept=lambda *_: None,
    )
    killer.join(30)
    forkserver.close_servers()  # the next one is whole again
    assert killed
    assert found.evaluation.verdict == Verdict.PASS
    assert len(found.evaluation.workloads) == 3
    assert watch.document()["retried"] == 1
