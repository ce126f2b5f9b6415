"""Profilers on the GPU that is here: what they see of a known kernel."""

from __future__ import annotations

import shutil

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.ledger import DictLedger
from kopt_harness.local import LocalHarness
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.schema import Definition, Profile
from kopt_harness.targets import best_target

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
]


def profile(catalog: Catalog, definition: Definition, batch: int, profiler: str) -> Profile:
    """The recurrent decode kernel in CUDA, one call."""
    folder = catalog.folder(definition) / "solutions" / "cuda-recurrent"
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(definition)}
    options = MeasureOptions(trials=1, pool=2)
    harness = LocalHarness(catalog.root, catalog, TARGET.name, options, profiler=profiler)
    try:
        solution = load(folder, known=catalog).solution
        return harness.profile(solution, by_batch[batch], DictLedger())
    finally:
        harness.close()


@pytest.mark.skipif(shutil.which("ncu") is None, reason="ncu is not on the path")
@pytest.mark.parametrize("batch", [1, 64])
def test_ncu_has_the_counters_of_the_call_alone(
    catalog: Catalog, gdn_decode: Definition, batch: int
) -> None:
    """One kernel, with occupancy and both throughputs; nothing of inputs or references."""
    found = profile(catalog, gdn_decode, batch, "ncu")
    (kernel,) = found.kernels
    assert (kernel.calls, found.launches) == (1, 1)
    assert kernel.total_us > 0
    assert {
        "theoretical_occupancy_pct",
        "achieved_occupancy_pct",
        "compute_throughput_pct",
        "memory_throughput_pct",
        "waves_per_sm",
        "registers",
    } <= set(kernel.metrics)
    assert any("limited by" in note for note in found.notes)


def test_machine_code_agrees_with_the_counters(catalog: Catalog, gdn_decode: Definition) -> None:
    """The code is for the architecture that is here."""
    found = profile(catalog, gdn_decode, 1, "sass")
    assert found.compiled
    assert all(kernel.arch.startswith("sm_") for kernel in found.compiled)
    assert all(kernel.registers for kernel in found.compiled)
