"""Judges honest solution folders with everything on, as a user would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.schema import Evaluation
from kopt_harness.setting import Setting

HERE = Path(__file__).parent
SOLUTIONS = HERE / "solutions"

Judged = Callable[..., Evaluation]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is timed, and may raise no flag, is timed alone."""
    for item in items:
        timed = {"passes", "passes_simulated"} & set(getattr(item, "fixturenames", ()))
        if timed and HERE in item.path.parents:
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def judged(catalog: Catalog) -> Judged:
    """Checks and times a folder of ``solutions`` on the CPU."""

    def judge(name: str, *indices: int, timed: bool = True) -> Evaluation:
        options = MeasureOptions(trials=2, pool=2, bench_calls=5)
        setting = Setting.here(catalog, "cpu", options)
        solution = load(SOLUTIONS / name, known=catalog).solution
        workloads = catalog.workloads(catalog.resolve(solution.definition))
        chosen = [workloads[index] for index in indices or (0,)]
        return evaluate(setting, solution, chosen, DictLedger(), timed=timed)

    return judge


@pytest.fixture
def passes(judged: Judged) -> Callable[..., Evaluation]:
    """As ``judged``, and nothing may be held against it."""

    def judge(name: str, *indices: int, timed: bool = True) -> Evaluation:
        evaluation = judged(name, *indices, timed=timed)
        assert evaluation.verdict == "pass", evaluation.reasons
        assert not evaluation.flags
        return evaluation

    return judge


UNAVOIDABLE = {"simulated-device", "lint-harness"}
"""Of every solution that is written for the simulated device."""


@pytest.fixture
def passes_simulated(catalog: Catalog) -> Callable[..., Evaluation]:
    """Checks and times a folder on the simulated device; nothing else may be held against it."""

    def judge(name: str) -> Evaluation:
        options = MeasureOptions(trials=2, pool=2, bench_calls=8)
        setting = Setting.here(catalog, "simulated", options)
        solution = load(SOLUTIONS / name, known=catalog).solution
        workload = catalog.workloads(catalog.resolve(solution.definition))[0]
        evaluation = evaluate(setting, solution, [workload], DictLedger(), timed=True)
        assert evaluation.verdict == "pass", evaluation.reasons
        assert {flag.code for flag in evaluation.flags} <= UNAVOIDABLE, evaluation.flags
        return evaluation

    return judge
