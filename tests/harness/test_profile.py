"""Profilers: what one run is made of, and that a profile is measured once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import NotFoundError
from kopt_harness.evaluate import build
from kopt_harness.ledger import DictLedger
from kopt_harness.local import LocalHarness
from kopt_harness.options import MeasureOptions
from kopt_harness.profile import profiler_names, run_profiler
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Profile, Solution, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting


@pytest.fixture(scope="module")
def workload(catalog: Catalog, gdn_decode: Definition) -> Workload:
    """B = 4."""
    return catalog.workloads(gdn_decode)[10]


@pytest.fixture(scope="module")
def warm(setting: Setting, gdn_decode: Definition, workload: Workload) -> Iterator[Session]:
    """One judge for the tests of this module."""
    with Session(setting, gdn_decode, [workload]) as session:
        session.bind(workload)
        yield session


def profile(session: Session, setting: Setting, solution: Solution, profiler: str) -> Profile:
    """Opens the solution, profiles one set, and closes it."""
    session.open(solution, build(setting, solution).path)
    try:
        (number,) = session.sets(next(iter(session.generators)), 1, reference=False)
        found = session.profile(solution.sha256, number, profiler)
    finally:
        session.discard(solution.sha256)
    found.pop("phases", None)
    fields = {key: found[key] for key in ("total_us", "kernels", "launches", "notes")}
    ref = {"name": "x", "definition": "y", "sha256": solution.sha256}
    return Profile.model_validate(
        {"profiler": profiler, "solution": ref, "target": "cpu", "uuid": "", "axes": {}, **fields}
    )


def require_consistent(found: Profile) -> None:
    """Largest first; shares and times add up."""
    times = [kernel.total_us for kernel in found.kernels]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(found.total_us)
    assert sum(kernel.share for kernel in found.kernels) == pytest.approx(1)
    assert found.launches == sum(kernel.calls for kernel in found.kernels) > 0


def test_pytorch_operators_are_named(warm, setting, make_solution, honest) -> None:
    """The operators that the source calls are there, with calls per run, not per profile."""
    found = profile(warm, setting, make_solution(honest), "torch")
    require_consistent(found)
    by_name = {kernel.name: kernel for kernel in found.kernels}
    assert "aten::bmm" in by_name
    # Two products of a matrix and a vector, two softplus and sigmoid gates.
    assert by_name["aten::bmm"].calls == 2
    assert by_name["aten::sigmoid"].calls == 1


def test_time_outside_operators_is_not_lost(warm, setting, make_solution, honest) -> None:
    """A run that mostly does something else says so first."""
    source = honest + "    import time; time.sleep(0.02)\n"
    found = profile(warm, setting, make_solution(source, name="idle"), "torch")
    require_consistent(found)
    assert "outside PyTorch" in found.kernels[0].name
    assert found.kernels[0].total_us > 19_000


def test_the_null_profiler_claims_nothing(warm, setting, make_solution, honest) -> None:
    """Unknown is null, not zero."""
    found = profile(warm, setting, make_solution(honest), "null")
    assert found.total_us is None
    assert found.launches is None
    assert found.kernels == ()
    assert found.notes


def test_profilers_are_found_by_their_files() -> None:
    """An unknown one is an error that lists them."""
    assert {"null", "torch"} <= set(profiler_names())
    with pytest.raises(NotFoundError, match="crystal") as caught:
        run_profiler("crystal", None, None)
    assert "torch" in caught.value.hint


def test_a_profile_is_a_unit_of_the_ledger(
    scratch_root: Root, catalog: Catalog, workload, make_solution, honest
) -> None:
    """The second harness reads it back and starts nothing."""
    solution, ledger = make_solution(honest), DictLedger()
    options = MeasureOptions(trials=1)
    harness = LocalHarness(scratch_root, catalog, "cpu", options, profiler="null")
    try:
        first = harness.profile(solution, workload, ledger)
        assert harness.phases_ns["profile"] > 0
    finally:
        harness.close()
    assert (first.solution.sha256, first.uuid) == (solution.sha256, workload.uuid)
    (key,) = ledger.completed()
    assert solution.sha256[:12] in key

    cold = LocalHarness(scratch_root, catalog, "cpu", options, profiler="null")
    assert cold.profile(solution, workload, ledger) == first
    assert cold.phases_ns == {}
    cold.close()
