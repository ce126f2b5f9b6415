"""Honest behaviour that only a GPU has, and that must pass without a flag."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import BuildSpec, Definition, Verdict
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
]

OPTIONS = MeasureOptions(trials=1, pool=2, bench_calls=20)
IMPORTS = "import triton\nimport triton.language as tl\n"
DEPENDENT = """
@triton.jit
def move(source, target, count, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(target + place, tl.load(source + place, mask=inside), mask=inside)
    tl.extra.cuda.gdc_launch_dependents()

def run(*arguments):
    held = [torch.empty_like(each) for each in arguments[-2:]]
    honest(*arguments[:-2], *held)
    for source, target in zip(held, arguments[-2:]):
        blocks = triton.cdiv(source.numel(), 1024)
        move[(blocks,)](source, target, source.numel(), BLOCK=1024, launch_pdl=True)
"""
TUNED = """
@triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 1024)], key=["count"])
@triton.jit
def move(source, target, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(target + place, tl.load(source + place, mask=inside), mask=inside)

def run(*arguments):
    held = [torch.empty_like(each) for each in arguments[-2:]]
    honest(*arguments[:-2], *held)
    for source, target in zip(held, arguments[-2:]):
        count = source.numel()
        move[lambda chosen: (triton.cdiv(count, chosen["BLOCK"]),)](source, target, count)
"""


@pytest.fixture(scope="module")
def warm(catalog: Catalog, gdn_decode: Definition) -> Iterator[Session]:
    """One judge for all tests of this module, on the smallest workload."""
    setting = Setting.here(catalog, TARGET.name, OPTIONS)
    with Session(setting, gdn_decode, catalog.workloads(gdn_decode)[:1]) as session:
        yield session


@pytest.mark.parametrize(
    ("name", "source"),
    [("k02-dependent-launches", DEPENDENT), ("k03-tuned-in-first-call", TUNED)],
)
def test_honest_launches_pass_without_a_flag(
    catalog: Catalog, gdn_decode: Definition, warm, make_solution, honest, name, source
) -> None:
    """Programmatic dependent launches (K02); a compiler and a tuner in the first call (K03)."""
    setting = Setting.here(catalog, TARGET.name, OPTIONS)
    made = make_solution(IMPORTS + honest.replace("def run(", "def honest(") + source, name=name)
    spec = BuildSpec.model_validate(made.spec.model_dump() | {"target_hardware": ("cuda",)})
    solution = made.model_copy(update={"spec": spec})
    smallest = catalog.workloads(gdn_decode)[:1]
    with device_lease(setting.device_id):
        found = evaluate(setting, solution, smallest, DictLedger(), timed=True, session=warm)
    assert found.verdict == Verdict.PASS, found.reasons
    assert not found.flags
    (row,) = found.workloads
    assert row.timing is not None
