"""The judge on the GPU that is here: verdicts, device time, and what cannot hide from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.evaluate import evaluate
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import BuildSpec, Definition, Evaluation, Solution, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
]

OPTIONS = MeasureOptions(trials=2, pool=2, bench_calls=20, blocks_min=3, blocks_max=6)
KERNELS = ["triton-recurrent", "cuda-recurrent"]


@pytest.fixture(scope="module")
def gpu(catalog: Catalog) -> Setting:
    """The target with its own timer."""
    return Setting.here(catalog, TARGET.name, OPTIONS)


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1, B = 16 and B = 64."""
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(gdn_decode)}
    return [by_batch[batch] for batch in (1, 16, 64)]


@pytest.fixture(scope="module")
def warm(gpu: Setting, gdn_decode: Definition, workloads: list[Workload]) -> Iterator[Session]:
    """One judge for all tests of this module."""
    with Session(gpu, gdn_decode, workloads) as session:
        yield session


def bench(
    gpu: Setting, solution: Solution, workloads: list[Workload], session: Session | None = None
) -> Evaluation:
    """Checked and timed under the lease of the device."""
    with device_lease(gpu.device_id):
        return evaluate(gpu, solution, workloads, DictLedger(), timed=True, session=session)


def on_gpu(solution: Solution) -> Solution:
    """A made solution, declared for CUDA."""
    spec = BuildSpec.model_validate(solution.spec.model_dump() | {"target_hardware": ("cuda",)})
    return solution.model_copy(update={"spec": spec})


def medians_us(evaluation: Evaluation) -> list[float]:
    """Of each workload; all must have one."""
    found: list[float] = []
    for row in evaluation.workloads:
        assert row.timing is not None
        found.append(row.timing["median_us"])
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_passes_and_is_timed_by_cupti(
    gpu, warm, catalog, gdn_decode, workloads, name
) -> None:
    """Pass in both tiers without a flag; cold device time no less than the floor allows."""
    evaluation = bench(gpu, catalog.solution(gdn_decode, name).solution, workloads, warm)
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons
    assert not evaluation.flags
    assert gpu.timer == "cupti"
    assert TARGET.l2_bytes is not None
    for row in evaluation.workloads:
        assert row.tiers["strict"].verdict == "pass"
        timing = row.timing
        assert timing is not None
        assert (timing["timer"], timing["cache"]) == ("cupti", "cold")
        assert timing["flush_bytes"] >= 2 * TARGET.l2_bytes.value
        assert timing["n"] == len(timing["samples_ns"]) == OPTIONS.bench_calls
        assert timing["p95_us"] >= timing["median_us"] > 0
    small, _, large = medians_us(evaluation)
    assert large > small
    assert evaluation.environment["gpu_uuid"] == gpu.device_id


def census(ledger: DictLedger, which: str) -> list[dict[str, Any]]:
    """Device activity of one of the two, of every recorded block."""
    blocks = [ledger.get(key) for key in ledger.completed() if "block/" in key]
    return [block["census"][which] for block in blocks if block is not None]


def test_two_kernels_are_compared_with_one_launch_each(
    gpu, warm, catalog, gdn_decode, workloads
) -> None:
    """Each call is one kernel in every block, and clocks travel with the samples."""
    a, b = (catalog.solution(gdn_decode, name).solution for name in KERNELS)
    ledger = DictLedger()
    comparison = compare_pair(Pair.of(gpu, warm, ledger, a, b), workloads)
    assert comparison.ratio is not None
    assert comparison.ci is not None
    assert comparison.ci[0] <= comparison.ratio <= comparison.ci[1]
    assert all(row.n >= OPTIONS.blocks_min for row in comparison.workloads)
    for which in ("a", "b"):
        found = census(ledger, which)
        assert found
        assert all(each["launches"] == [1] for each in found)
        assert all(each["kernels"][0]["ns"] > 0 for each in found)
    first = ledger.get(ledger.completed()[0])
    assert first is not None
    assert set(first["conditions"]["before"]) >= {"sm_mhz", "temperature_c", "throttle_reasons"}


def test_pytorch_needs_many_launches_and_more_time(
    gpu, warm, catalog, gdn_decode, workloads
) -> None:
    """The census counts what a solution really launches; the kernel beats it."""
    plain = catalog.solution(gdn_decode, "torch-vectorized").solution
    kernel = catalog.solution(gdn_decode, "triton-recurrent").solution
    ledger = DictLedger()
    comparison = compare_pair(Pair.of(gpu, warm, ledger, plain, kernel), workloads)
    assert comparison.decision == "faster"
    assert min(each["launches"][0] for each in census(ledger, "a")) > 1


SIDE_STREAM = """
def run(*arguments):
    global side
    side = side or torch.cuda.Stream()
    with torch.cuda.stream(side):
        honest(*arguments)
"""


def test_work_on_a_side_stream_is_not_free(gpu, warm, workloads, make_solution, honest) -> None:
    """Unjoined work is either missed and wrong, or counted; it never passes with a short time."""
    source = honest.replace("def run(", "side = None\n\ndef honest(") + SIDE_STREAM
    open_ = bench(gpu, on_gpu(make_solution(honest, name="joined")), workloads, warm)
    hidden = bench(gpu, on_gpu(make_solution(source, name="unjoined")), workloads, warm)
    assert open_.verdict == Verdict.PASS, open_.reasons
    if hidden.verdict == Verdict.PASS:
        pairs = zip(medians_us(hidden), medians_us(open_), strict=True)
        assert all(seen > 0.5 * honest_us for seen, honest_us in pairs)


def test_a_call_without_a_kernel_is_no_answer(gpu, warm, workloads, make_solution) -> None:
    """Poisoned outputs stay poisoned."""
    signature = "q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state"
    idle = make_solution(f"def run({signature}):\n    pass\n", name="idle")
    evaluation = bench(gpu, on_gpu(idle), workloads[:1], warm)
    assert evaluation.verdict == Verdict.FAIL
    assert evaluation.phase == "check"


def test_events_are_used_only_when_asked_for(catalog, gdn_decode, workloads) -> None:
    """The choice stands in every timing; the wall clock of the CPU is refused."""
    solution = catalog.solution(gdn_decode, "triton-recurrent").solution
    options = OPTIONS.model_copy(update={"timer": "events", "trials": 1})
    evaluation = bench(Setting.here(catalog, TARGET.name, options), solution, workloads[:1])
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons
    timing = evaluation.workloads[0].timing
    assert timing is not None
    assert timing["timer"] == "events"
    assert evaluation.environment["timer"] == "events"
