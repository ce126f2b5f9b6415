"""An external profiler on the GPU that is here: what it confirms, and what it contradicts."""

from __future__ import annotations

import shutil

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.confirm import confirm
from kopt_harness.evaluate import build
from kopt_harness.lint import LintReport
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.schema import Confirmation, Definition, Solution, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target
from kopt_harness.timed import TimedCalls

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
]
needs_ncu = pytest.mark.skipif(shutil.which("ncu") is None, reason="ncu is not on the path")
HONEST = ["cuda-recurrent", "torch-vectorized", "triton-recurrent"]
"""One kernel, many kernels, and one that is compiled in the process."""


@pytest.fixture(scope="module")
def gpu(catalog: Catalog) -> Setting:
    """The target with its own timer."""
    return Setting.here(catalog, TARGET.name, MeasureOptions(trials=1, pool=2))


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 64."""
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(gdn_decode)}
    return [by_batch[batch] for batch in (1, 64)]


def known(catalog: Catalog, gdn_decode: Definition, name: str) -> Solution:
    """A solution of the project."""
    return load(catalog.folder(gdn_decode) / "solutions" / name, known=catalog).solution


def confirmed(gpu: Setting, solution: Solution, workloads: list[Workload]) -> Confirmation:
    """Built and run under the profiler."""
    return confirm(gpu, solution, build(gpu, solution), workloads)


def told(found: Confirmation) -> str:
    """For the message of an assertion."""
    rows = "; ".join(
        f"{r.axes}: {r.kernels} kernels, claimed {r.claimed_busy_us:.2f}, "
        f"raw {r.external_raw_us:.2f} us, {r.outcome}"
        for r in found.workloads
    )
    return f"{found.outcome}: {found.reason} (bias {found.bias_us}; {rows})"


@needs_ncu
@pytest.mark.parametrize("name", HONEST)
def test_honest_times_are_confirmed_inside_the_whole_sandbox(
    gpu: Setting,
    catalog: Catalog,
    gdn_decode: Definition,
    workloads: list[Workload],
    name: str,
) -> None:
    """Nothing of the sandbox is left out for the profiler."""
    found = confirmed(gpu, known(catalog, gdn_decode, name), workloads)
    if "ERR_NVGPUCTRPERM" in found.reason:
        pytest.skip("counters are for administrators here")
    assert found.outcome == "agreed", told(found)
    assert found.isolation["no_capabilities"]
    assert found.isolation["no_new_privileges"]


LIE = """
from kopt_harness.bench.timers import cupti

whole = cupti.read_record

def shorter(activity, kind):
    record = whole(activity, kind)
    return record._replace(end_ns=record.start_ns + int(0.7 * (record.end_ns - record.start_ns)))

cupti.read_record = shorter
"""


@needs_ncu
def test_records_that_are_thirty_percent_too_short_are_contradicted(
    gpu: Setting,
    catalog: Catalog,
    gdn_decode: Definition,
    workloads: list[Workload],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At B = 64, where thirty percent are more than what is not known of the profiler."""
    monkeypatch.setattr("kopt_harness.evaluate.lint", lambda solution: LintReport())
    honest = known(catalog, gdn_decode, "triton-recurrent")
    entry = honest.spec.entry_point.partition("::")[0]
    sources = tuple(
        source.model_copy(update={"content": source.content + LIE})
        if source.path == entry
        else source
        for source in honest.sources
    )
    found = confirmed(gpu, honest.model_copy(update={"sources": sources}), workloads[1:])
    if "ERR_NVGPUCTRPERM" in found.reason:
        pytest.skip("counters are for administrators here")
    assert found.outcome == "disagreed", told(found)
    assert found.flag is not None
    assert found.flag.code == "timer-disagrees"


@pytest.mark.parametrize("name", HONEST)
def test_calls_back_to_back_contradict_no_honest_time(
    gpu: Setting, catalog: Catalog, gdn_decode: Definition, workloads: list[Workload], name: str
) -> None:
    """Launching takes longer than the kernel, and is allowed for."""
    solution = known(catalog, gdn_decode, name)
    with Session(gpu, gdn_decode, workloads) as session:
        for workload in workloads:
            session.bind(workload)
            session.open(solution, build(gpu, solution).path)
            calls = TimedCalls(gpu, session, workload)
            calls.slot(solution.sha256, 8)
            calls.back_to_back(solution.sha256)
            assert calls._batches[solution.sha256]
            codes = {flag.code for flag in calls.flags(solution.sha256)}
            assert "batch-disagrees" not in codes, calls._batches
