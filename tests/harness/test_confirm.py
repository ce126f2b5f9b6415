"""Claims held against a profiler outside of the process that makes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.confirm import Bias, Claim, bias_of, confirm, weigh
from kopt_harness.evaluate import build
from kopt_harness.external import Launch
from kopt_harness.external.ncu_ import Ncu
from kopt_harness.lint import LintReport
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.schema import Confirmation, Workload
from kopt_harness.setting import Setting

TESTS = Path(__file__).parents[1]
HONEST = TESTS / "controls" / "solutions" / "k01-full-graph-key"
STREAMS = TESTS / "controls" / "solutions" / "k02-joined-streams"
SHORTENED = TESTS / "exploits" / "solutions" / "t10-shortened-records"
NONE = Bias(0, 0)
MARKER = Launch("marker", "(5, 1, 1)", "7", 2_000)


@pytest.fixture
def workload(catalog: Catalog, gdn_decode: Any) -> Workload:
    """The smallest."""
    return catalog.workloads(gdn_decode)[0]


def call(*ns: float, streams: str = "") -> tuple[Launch, ...]:
    """A marker and kernels, all on one stream unless there is a digit for each."""
    numbers = streams or "7" * len(ns)
    kernels = (Launch("k", "(1, 1, 1)", s, t) for s, t in zip(numbers, ns, strict=True))
    return (MARKER, *kernels)


def claims(span_ns: int, kernels_ns: int, copies_ns: int = 0) -> list[Claim]:
    """Equal ones."""
    return [Claim(span_ns, kernels_ns + copies_ns, kernels_ns)] * 3


def test_the_larger_of_a_tenth_and_half_a_microsecond_is_allowed(workload: Workload) -> None:
    """A long call may be a tenth off, a short one half a microsecond, and no more."""

    def outcome(claimed: int, found: float) -> str:
        return weigh(workload, claims(claimed, claimed), [call(found)], NONE, None).outcome

    assert outcome(90_000, 100_000) == outcome(110_000, 100_000) == "agreed"
    assert outcome(89_000, 100_000) == outcome(111_000, 100_000) == "disagreed"
    assert outcome(1_600, 2_000) == "agreed"
    assert outcome(1_400, 2_000) == "disagreed"


def test_a_lie_of_thirty_percent_is_named_with_both_numbers(workload: Workload) -> None:
    """What a person reads of it."""
    row = weigh(workload, claims(7_000, 7_000), [call(10_000)], NONE, None)
    assert row.outcome == "disagreed"
    assert "10.00 us" in row.detail
    assert "7.00 us" in row.detail


def test_each_kernel_is_less_by_the_profilers_bias(workload: Workload) -> None:
    """Of eight kernels eight times: raw they would be 60 % apart."""
    row = weigh(workload, claims(10_000, 9_600), [call(*[2_000] * 8)], Bias(800, 0), None)
    assert (row.outcome, row.kernels) == ("agreed", 8)
    assert (row.external_raw_us, row.external_us) == (16.0, pytest.approx(9.6))


def test_the_bias_is_that_of_the_evaluators_own_kernels() -> None:
    """Half of what a call of two takes longer; neither negative nor without bound."""
    own = [call(1_800, 1_900)] * 3
    assert bias_of([2_000, 2_100, 2_200], own, 700) == (pytest.approx(800), 700)
    assert bias_of([4_000], own, 700).least_ns == 0
    assert bias_of([1], [call(90_000)], 700).least_ns == 2_000
    assert bias_of([], own, 700) == (0, 700)


NCU = Bias(688, 700)
"""Of one H200, driver 580, ncu 2025.3.1, 2026-11-30."""


@pytest.mark.parametrize(
    ("raw", "claimed", "least"),
    [
        (2_820, 1_890, 1_211),
        (6_240, 4_990, 4_354),
        (11_170, 9_820, 8_806),
        (19_520, 18_210, 16_321),
    ],
)
def test_readings_of_a_gpu_are_confirmed_and_lies_below_them_are_not(
    workload: Workload, raw: int, claimed: int, least: int
) -> None:
    """Honest claims lie within the range of the bias; docs/measurement.md has the least."""

    def outcome(ns: int) -> str:
        return weigh(workload, claims(ns, ns), [call(raw)], NCU, None).outcome

    row = weigh(workload, claims(claimed, claimed), [call(raw)], NCU, None)
    assert row.outcome == "agreed"
    assert row.external_us == pytest.approx(claimed / 1e3, abs=0.2)
    assert outcome(least) == "agreed"
    assert outcome(least - 20) == "disagreed"


def test_of_many_tiny_kernels_a_third_can_be_hidden(workload: Workload) -> None:
    """Twenty of a microsecond: the bias is nearly as long as they are."""
    many = [call(*[1_690] * 20)]
    assert weigh(workload, claims(20_000, 20_000), many, NCU, None).outcome == "agreed"
    assert weigh(workload, claims(14_000, 13_000), many, NCU, None).outcome == "disagreed"


def test_true_kernels_in_an_untrue_span_are_seen(workload: Workload) -> None:
    """Three kernels of one stream do not fit into the time of one, unless they overlap."""
    calls = [call(5_000, 5_000, 5_000)]
    assert weigh(workload, claims(16_000, 15_000), calls, NONE, None).outcome == "agreed"
    row = weigh(workload, claims(16_000, 15_000), calls, NONE, 9.0)
    assert row.outcome == "disagreed", "the comparison had another median"
    quick = [call(5_000, 5_000), call(5_000, 5_000, 5_000), call(9_000, 9_000)]
    assert weigh(workload, claims(16_000, 15_000), quick, NONE, 9.1).outcome == "agreed"
    row = weigh(workload, claims(16_000, 15_000), quick, NONE, 8.9)
    assert row.outcome == "disagreed", "no inputs take so little"
    row = weigh(workload, claims(6_000, 15_000), calls, NONE, None)
    assert row.outcome == "unconfirmed"
    assert "overlap" in row.detail


def test_kernels_of_several_streams_may_overlap(workload: Workload) -> None:
    """The longest stream bounds the span."""
    calls = [call(5_000, 5_000, 5_000, streams="789")]
    assert weigh(workload, claims(6_000, 15_000), calls, NONE, None).outcome == "agreed"
    assert weigh(workload, claims(4_000, 15_000), calls, NONE, None).outcome == "unconfirmed"


def test_copies_alone_confirm_nothing(workload: Workload) -> None:
    """The profiler reports kernels; a call of copies only is as unknown as before."""
    assert weigh(workload, claims(9_000, 0, 9_000), [call()], NONE, None).outcome == "unconfirmed"
    assert weigh(workload, claims(0, 0), [call()], NONE, None).outcome == "agreed"
    mixed = claims(16_000, 5_000, 9_000)
    assert weigh(workload, mixed, [call(5_000)], NONE, None).outcome == "agreed"


Confirmed = Callable[[Path], Confirmation]


@pytest.fixture
def confirmed(catalog: Catalog, workload: Workload, monkeypatch: pytest.MonkeyPatch) -> Confirmed:
    """A solution folder on the simulated device, on the smallest workload alone."""
    # Attacks are caught by what they do; and one workload is enough.
    monkeypatch.setattr("kopt_harness.evaluate.lint", lambda solution: LintReport())
    monkeypatch.setattr("kopt_harness.confirm.OTHERS", 0)
    setting = Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=1))

    def judge(folder: Path) -> Confirmation:
        solution = load(folder, known=catalog).solution
        built = build(setting, solution)
        assert built.ok, built.log
        return confirm(setting, solution, built, [workload])

    return judge


def test_a_timer_that_lies_by_thirty_percent_is_contradicted(confirmed: Confirmed) -> None:
    """Its records are a third shorter; what the device itself has counted is not."""
    found = confirmed(SHORTENED)
    assert found.outcome == "disagreed"
    assert found.flag is not None
    assert found.flag.code == "timer-disagrees"
    (row,) = found.workloads
    assert row.claimed_busy_us == pytest.approx(0.7 * row.external_us, rel=0.01)


def test_an_honest_timer_is_confirmed_in_the_same_sandbox(confirmed: Confirmed) -> None:
    """The candidate that was profiled had everything in force that others have."""
    found = confirmed(HONEST)
    assert (found.outcome, found.flag) == ("agreed", None), found.reason
    assert found.isolation["no_new_privileges"]
    assert "switched off by a test" not in str(found.isolation)


def test_work_that_depends_on_the_inputs_is_confirmed(confirmed: Confirmed, tmp_path: Path) -> None:
    """Both runs get the same inputs: from one set to the next this kernel takes 5 to 65 us."""
    folder = tmp_path / HONEST.name
    shutil.copytree(HONEST, folder)
    (source,) = folder.rglob("device.py")
    depends = "ns=5_000 + int(float(arguments[0].float().abs().sum()) * 1e6) % 60_000,"
    text = source.read_text()
    assert text.count("ns=ns,") == 1
    source.write_text(text.replace("ns=ns,", depends))
    found = confirmed(folder)
    assert found.outcome == "agreed", found.reason
    (row,) = found.workloads
    assert row.external_us == pytest.approx(row.claimed_busy_us)


@pytest.mark.slow
def test_streams_that_overlap_are_confirmed(confirmed: Confirmed) -> None:
    """An honest control with work on two streams."""
    found = confirmed(STREAMS)
    assert found.outcome == "agreed", found.reason


class OnSimulated(Ncu):
    """ncu, where the simulated device has a profiler of its own."""

    device_kind: str = "simulated"


def test_ncu_that_is_not_installed_leaves_the_time_unconfirmed(
    confirmed: Confirmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not agreement, and not an error: a flag that a person may accept, with the reason."""
    monkeypatch.setattr("kopt_harness.confirm.external_for", lambda kind: OnSimulated())
    monkeypatch.setenv("PATH", "/nowhere")
    found = confirmed(HONEST)
    assert (found.outcome, found.reason) == ("unconfirmed", "ncu is not on the path")
    assert found.flag is not None
    assert found.flag.code == "timer-unconfirmed"


def test_ncu_without_permission_leaves_the_time_unconfirmed(
    confirmed: Confirmed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program on the path that says what ncu says then, and starts what it was told to."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(REFUSED)
    for each in (program, program.parent):
        each.chmod(0o755)
    monkeypatch.setattr("kopt_harness.confirm.external_for", lambda kind: OnSimulated())
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    found = confirmed(HONEST)
    assert found.outcome == "unconfirmed"
    assert found.reason.startswith("ERR_NVGPUCTRPERM")


REFUSED = """#!/bin/sh
echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
while [ $# -gt 0 ] && [ "$1" != "--csv" ]; do shift; done
[ $# -gt 0 ] || exit 1
shift
exec "$@"
"""


def test_a_processor_needs_no_profiler(
    setting: Setting, workload: Workload, make_solution: Any, honest: str
) -> None:
    """The orchestrator's own clock times it."""
    solution = make_solution(honest)
    found = confirm(setting, solution, build(setting, solution), [workload])
    assert (found.outcome, found.flag) == ("not-needed", None)
