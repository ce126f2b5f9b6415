"""The simulated target: found like any other, never chosen, and never grounds for promotion."""

from __future__ import annotations

from pathlib import Path

from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target, get_target, list_targets

HONEST = Path(__file__).parents[1] / "controls" / "solutions" / "k01-full-graph-key"


def test_it_is_listed_last_and_never_the_best() -> None:
    """Somebody has to ask for it."""
    assert list_targets()[-1].name == "simulated"
    assert best_target().name != "simulated"
    assert get_target("simulated").present().ok


def test_only_it_has_a_caveat() -> None:
    """Results of real hardware can promote."""
    assert [target.name for target in list_targets() if target.caveat] == ["simulated"]


def test_every_result_of_it_says_so_and_is_flagged(catalog: Catalog) -> None:
    """Target, device, timer and flag; the flag bars a promotion."""
    setting = Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=1, bench_calls=3))
    solution = load(HONEST, known=catalog).solution
    workload = catalog.workloads(catalog.resolve(solution.definition))[0]
    evaluation = evaluate(setting, solution, [workload], DictLedger(), timed=True)
    assert evaluation.target == "simulated"
    assert "simulated-device" in {flag.code for flag in evaluation.flags}
    assert evaluation.environment["device"] == "simulated GPU"
    (row,) = evaluation.workloads
    assert row.timing is not None
    assert row.timing["timer"] == "simulated"


def test_no_definition_has_an_incumbent_for_it(catalog: Catalog) -> None:
    """Nothing can be promoted there."""
    assert all(catalog.incumbent(each, "simulated") is None for each in catalog.definitions())
