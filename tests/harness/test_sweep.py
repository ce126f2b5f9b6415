"""Sweeps: every workload exactly once, by one worker pair or by several."""

from __future__ import annotations

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.fleet import admitted_workers
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition, Solution, SweepResult, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep

pytestmark = pytest.mark.alone

OPTIONS = MeasureOptions(trials=1, pool=1, blocks_min=2, blocks_max=2, sweep_stress_sets=0)
SLEEP = "    import time; time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def quick(catalog: Catalog) -> Setting:
    """The smallest budget with which a sweep decides."""
    return Setting.here(catalog, "cpu", OPTIONS)


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """Six small ones, not in the order of their size."""
    return [catalog.workloads(gdn_decode)[index] for index in (10, 0, 11, 1, 2, 12)]


def uuids(result: SweepResult) -> list[str]:
    """Of the workloads that have a verdict, in order."""
    return [row.uuid for row in result.evaluation.workloads]


def test_a_sweep_checks_and_times_everything(quick, workloads, make_solution, honest) -> None:
    """Complete only with a verdict and a timing of both solutions on each workload."""
    good = make_solution(honest, name="good")
    slow = make_solution(honest + SLEEP, name="slow")
    ledger = DictLedger()
    seen: list[str] = []
    result = sweep(quick, good, slow, workloads, ledger, progress=lambda w, _: seen.append(w.uuid))
    assert result.complete
    assert result.evaluation.verdict == Verdict.PASS
    assert uuids(result) == seen == [w.uuid for w in workloads]
    assert result.comparison is not None
    assert result.comparison.decision == "faster"
    assert [row.uuid for row in result.comparison.workloads] == seen
    for row in result.evaluation.workloads:
        assert row.timing["n"] == 2 * OPTIONS.blocks_min

    units = ledger.completed()
    again = sweep(quick, good, slow, workloads, ledger)
    assert ledger.completed() == units, "something was measured again"
    assert again.evaluation.isolation == result.evaluation.isolation != {}
    assert again.comparison == result.comparison
    assert again.evaluation.workloads == result.evaluation.workloads


def test_workers_share_the_workloads_out(catalog, quick, workloads, make_solution, honest) -> None:
    """Two worker pairs give what one gives: each workload once, in the order asked for."""
    solution = make_solution(honest, name="shared")
    setting = Setting(catalog, quick.target, OPTIONS.model_copy(update={"workers": 2}))
    ledger = DictLedger()
    result = sweep(setting, solution, None, workloads, ledger)
    assert result.complete
    assert result.comparison is None
    assert uuids(result) == [w.uuid for w in workloads]
    checks = [unit for unit in ledger.completed() if unit.startswith("check/")]
    assert len(checks) == len(workloads)
    # The same ledger with one worker: nothing is left to do.
    units = ledger.completed()
    again = sweep(quick, solution, None, workloads, ledger)
    assert ledger.completed() == units
    assert again.evaluation.workloads == result.evaluation.workloads


def test_many_workers_end_when_the_queue_is_empty(
    catalog, quick, workloads, make_solution, honest
) -> None:
    """Nobody waits for a workload that another one took; all answers are in the ledger."""
    solution = make_solution(honest, name="recorded")
    ledger = DictLedger()
    stress = quick.options.sweep_stress_sets
    row = evaluate(quick, solution, workloads[:1], ledger, stress_sets=stress).workloads[0]
    every = catalog.workloads(catalog.resolve("gdn_decode"))
    for workload in every:
        if workload.uuid != row.uuid:
            copy = row.model_copy(update={"uuid": workload.uuid, "axes": workload.axes})
            key = ledger.completed()[0].replace(row.uuid, workload.uuid)
            ledger.put(key, copy.model_dump(mode="json"))
    units = ledger.completed()
    setting = Setting(catalog, quick.target, OPTIONS.model_copy(update={"workers": 8}))
    for _ in range(20):
        result = sweep(setting, solution, None, every, ledger)
        assert uuids(result) == [w.uuid for w in every]
        assert ledger.completed() == units


@pytest.mark.parametrize(
    ("count", "blocks_min", "taken"), [(16, None, 2), (15, None, 3), (16, 4, 4)]
)
def test_many_workloads_are_looked_at_after_two_blocks(
    catalog, quick, make_solution, honest, count: int, blocks_min: int | None, taken: int
) -> None:
    """Few after three, and all after as many as were asked for; what is clear then is decided."""
    options = OPTIONS.model_copy(update={"blocks_min": blocks_min, "blocks_max": 4})
    setting = Setting(catalog, quick.target, options)
    a, b = make_solution(honest, name="a"), make_solution(honest + "\n# b\n", name="b")
    every = catalog.workloads(catalog.resolve("gdn_decode"))[:count]
    checked = DictLedger()
    row = evaluate(quick, b, every[:1], checked, stress_sets=0).workloads[0]
    ledger = DictLedger()
    for workload in every:
        copy = row.model_copy(update={"uuid": workload.uuid, "axes": workload.axes})
        key = checked.completed()[0].replace(row.uuid, workload.uuid)
        ledger.put(key, copy.model_dump(mode="json"))
        for number in range(4):
            times = {"a_ns": [200_000 + number, 200_000], "b_ns": [100_000, 100_000 + number]}
            key = f"block/{a.sha256[:12]}-{b.sha256[:12]}/{workload.uuid}/{number}"
            ledger.put(key, times | {"flags": [], "flush_bytes": 0, "order": "abba"})
    result = sweep(setting, b, a, every, ledger)
    assert result.complete
    assert result.comparison is not None
    assert result.comparison.decision == "faster"
    assert {row.n for row in result.comparison.workloads} == {taken}


def test_one_wrong_workload_fails_the_sweep_and_ends_timing(
    quick, workloads, make_solution, honest
) -> None:
    """The rest is still checked, so that a person sees all that is wrong; nothing is promoted."""
    wrong = make_solution(honest + "    if batch == 4:\n        output[0] = 0\n", name="wrong")
    result = sweep(
        quick, wrong, make_solution(honest), [*workloads[1:4], workloads[0]], DictLedger()
    )
    verdicts = [row.verdict for row in result.evaluation.workloads]
    assert verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.PASS, Verdict.FAIL]
    assert result.evaluation.verdict == Verdict.FAIL
    assert result.comparison is None
    assert workloads[2].uuid in result.evaluation.reasons[0].detail


def test_a_solution_that_keeps_dying_is_given_up(quick, workloads, make_solution, honest) -> None:
    """Three deaths are enough, and what was not tried makes the sweep incomplete."""
    dying = make_solution(honest + "    import os; os._exit(3)\n", name="dying")
    result = sweep(quick, dying, make_solution(honest), workloads, DictLedger())
    assert result.evaluation.verdict == Verdict.CRASH
    assert len(result.evaluation.workloads) == 3 < len(workloads)
    assert not result.complete
    assert result.comparison is None


def test_what_cannot_be_built_has_no_workloads(quick, workloads, make_solution) -> None:
    """One build, one verdict, with one worker or several."""
    broken = make_solution("def run(:\n", name="broken")
    for workers in (1, 2):
        options = OPTIONS.model_copy(update={"workers": workers})
        setting = Setting(quick.catalog, quick.target, options)
        result = sweep(setting, broken, None, workloads, DictLedger())
        assert (result.evaluation.verdict, result.evaluation.phase) == (Verdict.CRASH, "build")
        assert not result.complete


def test_workers_are_a_ceiling(catalog: Catalog, quick: Setting, make_solution, honest) -> None:
    """Never more than asked for, than workloads, or than memory has room for; never none."""
    solution: Solution = make_solution(honest)
    many = Setting(catalog, quick.target, OPTIONS.model_copy(update={"workers": 10_000}))
    every = catalog.workloads(catalog.resolve("gdn_decode"))
    assert admitted_workers(quick, every, solution) == 1
    assert 1 <= admitted_workers(many, every[:2], solution) <= 2
    assert 1 <= admitted_workers(many, every, solution) <= len(every)
