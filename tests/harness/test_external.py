"""Reports of external profilers: read whole or not at all, and each kernel in its call."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.external import (
    Launch,
    UnreadableError,
    attribute,
    external_for,
    external_names,
    get_external,
    read_report,
)

RECORDED = (Path(__file__).parent / "data" / "ncu_report.txt").read_text()
"""Four calls of three kernels: one H200, driver 580, ncu 2025.3.1, 2026-11-30."""
HEADER = '"ID","Kernel Name","Stream","Grid Size","Metric Name","Metric Unit","Metric Value"\n'


def row(number: int, unit: str = "ns", value: str = "1,568") -> str:
    """A line with the columns that are needed."""
    metric = "gpu__time_duration.sum"
    return f'"{number}","step(int, T2)","7","(1, 1, 1)","{metric}","{unit}","{value}"\n'


def test_a_report_of_ncu_is_read() -> None:
    """Messages are no rows, commas are in names and in numbers."""
    launches = read_report(RECORDED)
    assert len(launches) == 12
    assert launches[0] == Launch("busy(float *, long, int)", "(264, 1, 1)", "7", 20_160)
    assert [launch.ns for launch in launches[1:4]] == [1_600, 2_976, 19_808]


@pytest.mark.parametrize(
    ("unit", "value", "ns"),
    [("ns", "1,568", 1568), ("usecond", "1.57", 1570), ("ms", "2", 2e6), ("second", "1e-6", 1000)],
)
def test_units_of_all_versions_are_known(unit: str, value: str, ns: float) -> None:
    """Whatever unit a version prefers, it stands beside the number."""
    assert read_report(HEADER + row(0, unit, value))[0].ns == pytest.approx(ns)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no kernel"),
        ("==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n", "no kernel"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "ERR_NVGPUCTRPERM"),
        ("0,1\n" + HEADER + row(0), "before the table"),
        (HEADER.replace('"Stream",', ""), "no column 'Stream'"),
        (HEADER + row(0) + row(0), "kernel 1 was expected"),
        (HEADER + row(0) + HEADER, "kernel 1 was expected"),
        (HEADER + row(1), "kernel 0 was expected"),
        (HEADER + '"0","step"\n', "2 fields of 7"),
        (HEADER + row(0).replace("gpu__time_duration.sum", "gpc__cycles"), "'gpc__cycles'"),
        (HEADER + row(0, value="n/a"), "'n/a'"),
        (HEADER + row(0, unit="cycle"), "'cycle'"),
        (HEADER + row(0, value="nan"), "nan"),
        (HEADER + row(0, value="-5"), "-5"),
    ],
)
def test_what_is_not_whole_is_not_read(text: str, why: str) -> None:
    """A row too many or one that was put there leaves nothing of the report."""
    with pytest.raises(UnreadableError, match=why):
        read_report(text)


def test_every_call_begins_with_the_marker() -> None:
    """What lies between two markers belongs to the first."""
    launches = read_report(RECORDED)[1:]
    calls = attribute(launches, 4)
    assert [[launch.name[:4] for launch in call[1:]] for call in calls] == [
        ["busy", "busy"],
        ["busy", "busy"],
        ["busy", "busy"],
        ["busy"],
    ]


@pytest.mark.parametrize("calls", [3, 5])
def test_other_than_so_many_markers_attribute_nothing(calls: int) -> None:
    """Neither a call that was left out nor one that was put in is guessed at."""
    with pytest.raises(UnreadableError, match=f"4 calls are in the report, {calls} were made"):
        attribute(read_report(RECORDED)[1:], calls)


def test_a_kernel_that_looks_like_the_marker_attributes_nothing() -> None:
    """In the whole recording the first kernel comes twice in each call."""
    with pytest.raises(UnreadableError, match="8 calls"):
        attribute(read_report(RECORDED), 4)
    with pytest.raises(UnreadableError, match="no kernel"):
        attribute((), 0)


def test_each_kind_of_device_has_one() -> None:
    """A processor is timed by its own clock, and what takes many passes confirms nothing."""
    assert external_names() == ("ncu", "ncu_sections", "simulated")
    kinds = [get_external(name).device_kind for name in external_names()]
    assert kinds == ["cuda", "none", "simulated"]
    confirming = external_for("cuda")
    assert confirming is not None
    assert confirming.name == "ncu"
    assert external_for("cpu") is None


def test_ncu_takes_one_pass_and_leaves_the_device_alone() -> None:
    """No replay, no clocks, no caches, nothing but what is bracketed."""
    words = get_external("ncu").command(["python", "-m", "app"])
    assert words[0] == "ncu"
    assert words[-4:] == ["--csv", "python", "-m", "app"]
    given = dict(zip(words[1:-4:2], words[2:-4:2], strict=True))
    assert given["--clock-control"] == given["--cache-control"] == "none"
    assert given["--profile-from-start"] == "off"
    assert given["--metrics"] == "gpu__time_duration.sum"
