"""Controls: every CPU solution of the project passes where it should."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition, Evaluation, Verdict, Workload
from kopt_harness.setting import Setting

SMALL_BYTES = 700_000_000
"""Representatives that move more are for the slow tests."""
SMALL_FLOPS = 3_000_000_000

FIRST = ["gdn_decode", "gdn_prefill", "dsa_topk", "dsa_attention", "moe_fp8"]
COMPILED = [("gdn_decode", "cpp-recurrent"), ("gdn_prefill", "cpp-chunked")]
SOLUTIONS = [*((alias, "torch-vectorized") for alias in FIRST if alias != "moe_fp8"), *COMPILED]


def judge(
    catalog: Catalog, definition: Definition, name: str, workloads: Sequence[Workload]
) -> Evaluation:
    """The verdict on inputs of every generator."""
    setting = Setting.here(catalog, "cpu", MeasureOptions(trials=1))
    solution = catalog.solution(definition, name).solution
    return evaluate(setting, solution, workloads, DictLedger())


def is_small(catalog: Catalog, definition: Definition, workload: Workload) -> bool:
    """Whether checking it takes a second or two on one core."""
    cost = catalog.cost(definition, workload.axes)
    return cost.bytes <= SMALL_BYTES and cost.flops <= SMALL_FLOPS


def require_pass(
    catalog: Catalog, definition: Definition, evaluation: Evaluation, count: int
) -> None:
    """Every workload passes on a set of each generator, in the strict tier."""
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons
    assert not evaluation.flags
    assert len(evaluation.workloads) == count > 0
    for result in evaluation.workloads:
        assert result.trials >= 1
        assert result.tiers["strict"].verdict == "pass"
        assert result.tiers["contest"].verdict in ("pass", "n/a")
        declared = [output.output for output in result.tiers["strict"].outputs]
        assert declared == list(definition.outputs)


@pytest.mark.parametrize(("alias", "name"), SOLUTIONS)
def test_a_solution_passes_on_small_representatives(
    catalog: Catalog, alias: str, name: str
) -> None:
    """Right in both tiers in every regime that one core can check in seconds."""
    definition = catalog.resolve(alias)
    chosen = [w for w in catalog.representatives(definition) if is_small(catalog, definition, w)]
    evaluation = judge(catalog, definition, name, chosen)
    require_pass(catalog, definition, evaluation, len(chosen))


@pytest.mark.slow
@pytest.mark.parametrize(("alias", "name"), SOLUTIONS)
def test_a_solution_passes_on_large_representatives(
    catalog: Catalog, alias: str, name: str
) -> None:
    """The regimes that the test before this one leaves out."""
    definition = catalog.resolve(alias)
    regimes = catalog.representatives(definition)
    chosen = [w for w in regimes if not is_small(catalog, definition, w)]
    if not chosen:
        pytest.skip("every regime is small")
    evaluation = judge(catalog, definition, name, chosen)
    require_pass(catalog, definition, evaluation, len(chosen))


@pytest.mark.parametrize(
    "count", [1, pytest.param(4, marks=pytest.mark.slow, id="4-of-the-smallest")]
)
def test_the_mixture_of_experts_passes_on_its_smallest_workloads(
    catalog: Catalog, count: int
) -> None:
    """Larger token counts take a CPU minutes."""
    definition = catalog.resolve("moe_fp8")
    ordered = sorted(catalog.workloads(definition), key=lambda w: w.axes["seq_len"])
    evaluation = judge(catalog, definition, "torch-vectorized", ordered[:count])
    require_pass(catalog, definition, evaluation, count)


def test_no_cpu_solution_is_left_out(catalog: Catalog) -> None:
    """A new solution for the CPU is a new control."""
    declared = {
        (definition.kopt.alias, name)
        for definition in catalog.definitions()
        for name in catalog.solution_names(definition)
        if "cpu" in catalog.solution(definition, name).solution.spec.target_hardware
    }
    known = {*SOLUTIONS, ("moe_fp8", "torch-vectorized")}
    assert declared == known, "add it to SOLUTIONS, or keep it outside kernels/"
