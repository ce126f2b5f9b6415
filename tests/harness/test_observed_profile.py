"""Profiles by an external profiler: on the simulated device, and with one that refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import ProfileError, UnavailableError, UsageError
from kopt_harness.evaluate import build
from kopt_harness.external import external_for, get_external
from kopt_harness.ledger import DictLedger
from kopt_harness.local import LocalHarness
from kopt_harness.observed_profile import profile_observed
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.profile import external_of, is_external, read_calls, run_profiler
from kopt_harness.schema import Definition, Profile, Solution, Workload
from kopt_harness.setting import Setting

HONEST = Path(__file__).parents[1] / "controls" / "solutions" / "k01-full-graph-key"

REFUSED = """#!/bin/sh
echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
while [ $# -gt 0 ] && [ "$1" != "--csv" ]; do shift; done
[ $# -gt 0 ] || exit 1
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def workload(catalog: Catalog, gdn_decode: Definition) -> Workload:
    """The smallest."""
    return catalog.workloads(gdn_decode)[0]


@pytest.fixture
def simulated(catalog: Catalog) -> Setting:
    """The simulated device."""
    return Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=1))


@pytest.fixture(scope="module")
def solution(catalog: Catalog) -> Solution:
    """Launches kernels on the simulated device."""
    return load(HONEST, known=catalog).solution


def profiled(catalog: Catalog, solution: Solution, workload: Workload, profiler: str) -> Profile:
    """A profile on the simulated device."""
    options = MeasureOptions(trials=1, pool=1)
    harness = LocalHarness(catalog.root, catalog, "simulated", options, profiler=profiler)
    try:
        return harness.profile(solution, workload, DictLedger())
    finally:
        harness.close()


@pytest.fixture(scope="module")
def outside(catalog: Catalog, solution: Solution, workload: Workload) -> Profile:
    """By the external profiler."""
    return profiled(catalog, solution, workload, "ncu")


def test_one_call_is_profiled_without_its_inputs(outside: Profile) -> None:
    """Kernels of the solution alone, with times of the device; the marker is left out."""
    found = outside
    assert found.profiler == "ncu"
    assert found.kernels
    assert found.launches == sum(kernel.calls for kernel in found.kernels)
    assert found.total_us == pytest.approx(sum(kernel.total_us for kernel in found.kernels))
    assert all("marker" not in kernel.name for kernel in found.kernels)
    assert sum(kernel.share for kernel in found.kernels) == pytest.approx(1)
    assert found.diagnosis is not None
    assert found.notes[1].startswith(f"limited by {found.diagnosis.bottleneck}")


def test_a_refusing_driver_is_an_error_with_the_remedy(
    simulated: Setting,
    solution: Solution,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing empty is stored: the cause is the profiler's, not that of the candidate."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(REFUSED)
    for each in (program, program.parent):
        each.chmod(0o755)
    built = build(simulated, solution)
    monkeypatch.setattr(
        "kopt_harness.observed_profile.external_of", lambda name, kind: "ncu_sections"
    )
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with pytest.raises(ProfileError, match="ERR_NVGPUCTRPERM") as caught:
        profile_observed(simulated, solution, built, workload, "ncu")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.hint


def test_what_is_not_here_is_unavailable(
    setting: Setting,
    simulated: Setting,
    solution: Solution,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A processor has no such profiler; a machine may not have the program."""
    built = build(simulated, solution)
    with pytest.raises(UnavailableError, match="'cpu'"):
        profile_observed(setting, solution, built, workload, "ncu")
    monkeypatch.setattr(
        "kopt_harness.observed_profile.external_of", lambda name, kind: "ncu_sections"
    )
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="not on the path") as caught:
        profile_observed(simulated, solution, built, workload, "ncu")
    assert "Nsight Compute" in caught.value.hint


def test_sections_are_for_profiles_and_one_metric_for_confirmations() -> None:
    """Many passes flush before each of them; a confirmation replays nothing."""
    profiler = get_external("ncu_sections")
    words = profiler.command(["app", "argument"])
    assert words[0] == "ncu"
    assert words[-3:] == ["--csv", "app", "argument"]
    assert {"SpeedOfLight", "Occupancy", "LaunchStats"} <= set(words)
    assert words[words.index("--cache-control") + 1] == "all"
    assert words[words.index("--profile-from-start") + 1] == "off"
    confirming = external_for("cuda")
    assert confirming is not None
    assert confirming.name == "ncu"
    assert "--section" not in confirming.command(["app"])
    assert external_of("ncu", "cuda") == "ncu_sections"


def test_an_external_profiler_runs_in_no_candidate() -> None:
    """It has to start the process."""
    assert is_external("ncu")
    assert not is_external("torch")
    with pytest.raises(UsageError, match="another process"):
        run_profiler("ncu", None, None)


def test_the_census_of_timed_calls_is_a_profile(
    catalog: Catalog, solution: Solution, workload: Workload, outside: Profile
) -> None:
    """The same kernels as the external profiler sees, without a second subscriber."""
    census = profiled(catalog, solution, workload, "cupti")
    assert {k.name: k.calls for k in census.kernels} == {k.name: k.calls for k in outside.kernels}
    assert census.total_us == pytest.approx(outside.total_us, rel=0.01)


def test_a_timer_without_a_census_is_no_profiler(
    catalog: Catalog, setting: Setting, workload: Workload, make_solution, honest: str
) -> None:
    """A processor's clock knows nothing of what runs; nothing empty is stored."""
    options = MeasureOptions(trials=1, pool=1)
    harness = LocalHarness(catalog.root, catalog, "cpu", options, profiler="cupti")
    ledger = DictLedger()
    try:
        with pytest.raises(UnavailableError, match="'cpu'"):
            harness.profile(make_solution(honest), workload, ledger)
    finally:
        harness.close()
    assert not ledger.completed()


def test_a_census_is_the_median_of_its_calls() -> None:
    """An activity that most calls lack counts as nothing; shares add up."""
    calls = [
        {"kernels": [{"name": "k", "ns": ns, "count": 2}], "busy_ns": ns, "host_ns": 500}
        for ns in (4000, 9000, 5000)
    ]
    calls[1]["kernels"].append({"name": "memset", "ns": 100, "count": 1})
    found = read_calls("cupti", calls)
    assert (found["total_us"], found["launches"]) == (5.0, 2)
    assert [(k["name"], k["total_us"], k["share"]) for k in found["kernels"]] == [
        ("k", 5.0, 1.0),
        ("memset", 0.0, 0.0),
    ]
    with pytest.raises(ProfileError, match="nothing on the device"):
        read_calls("cupti", [{"kernels": [], "host_ns": 1}])
