"""The census: each device activity belongs to one call, to the evaluator, or to nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.bench.timers.census import (
    Activity,
    Bracket,
    Flushes,
    Markers,
    MissingMarkerError,
    lacking,
    require_sound,
    take_census,
)
from kopt_harness.errors import InfraError

MARKERS = Markers(Bracket("fill", 7), Bracket("fill", 11), Bracket("fill", 5))
FENCE_NS = 400


def kernel(name: str, start_ns: int, end_ns: int, correlation: int, stream: int = 7) -> Activity:
    """A record like CUPTI's."""
    return Activity("kernel", name, start_ns, end_ns, correlation, stream, 132)


def window(*inside: Activity, returned: int = 50, end: int = 60) -> list[Activity]:
    """Records of a call between the three markers."""
    return [
        Activity("kernel", "fill", 100, 110, 10, 7, 7),
        *inside,
        Activity("kernel", "fill", 9000, 9010, returned, 7, 11),
        Activity("kernel", "fill", 9100, 9110, end, 7, 5),
    ]


def test_the_span_is_first_start_to_last_end_over_all_streams() -> None:
    """Overlapping work counts once in the span, each in its own busy time."""
    records = window(
        kernel("second", 1500, 4000, 21, stream=13),
        kernel("first", 1000, 3000, 20),
        kernel("second", 5000, 5100, 23),
        Activity("memset", "memset", 3500, 3600, 22, 13, 4096),
    )
    census = take_census(records, MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.span_ns == 4100
    details = census.details()
    assert details["launches"] == 4
    assert details["before_first_ns"] == 600
    assert details["busy_ns"] == 2500 + 2000 + 100 + 100
    assert details["host_ns"] == 90
    assert details["kernels"][0] == {"name": "second", "ns": 2600, "count": 2}
    assert "unowned" not in details


def test_a_call_without_device_work_says_so() -> None:
    """Zero launches are what the judge rejects; they are not taken for a fast kernel."""
    census = take_census(window(), MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.span_ns == 0
    assert census.details()["launches"] == 0


def test_fingerprints_are_the_evaluators() -> None:
    """What is launched between the return and the last marker belongs to no call."""
    records = window(kernel("work", 1000, 2000, 20), kernel("checksum", 9050, 9060, 55))
    census = take_census(records, MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.counts == {"work": 1}
    assert census.unowned == ()


def test_what_is_launched_after_the_return_is_nobodys() -> None:
    """Although it ran before the last marker did, and on whatever stream."""
    late = kernel("late", 3000, 8000, 70, stream=21)
    records = window(kernel("work", 1000, 2000, 20), late)
    census = take_census(records, MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.unowned == (late,)
    assert census.span_ns == 1000
    assert census.details()["unowned"] == ["late"]


def test_what_runs_between_flush_and_call_is_nobodys() -> None:
    """It overlaps with the call, or has warmed the cache for it."""
    left = kernel("left", 90, 5000, 3, stream=21)
    done = kernel("prefetch", 20, 90, 4)
    records = [done, left, *window(kernel("work", 1000, 2000, 20))]
    census = take_census(records, MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.unowned == (done, left)
    assert census.counts == {"work": 1}


def test_a_flush_with_more_in_it_than_others_is_not_the_evaluators_alone() -> None:
    """Once it is known how little a flush launches, before it as well as after."""
    flushes = Flushes()
    flush = kernel("fill", 20, 90, 4)
    for records, beside in (
        ([flush, flush], False),
        ([flush], False),
        ([flush, kernel("prefetch", 30, 60, 5)], True),
        ([flush], False),
    ):
        flushes.saw(records)
        assert bool(flushes.beside()) is beside


def test_a_graph_launch_is_one_correlation() -> None:
    """All nodes of a graph carry the number of its launch."""
    nodes = [kernel(f"node{n}", 1000 + n * 100, 1090 + n * 100, 30) for n in range(3)]
    census = take_census(window(*nodes), MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.details()["launches"] == 3


def test_without_numbers_time_decides() -> None:
    """Records of a version without correlations: work after the last marker is nobody's."""
    unnumbered = [a._replace(correlation=0) for a in window(kernel("work", 1000, 2000, 0))]
    late = kernel("late", 9500, 9600, 0)
    census = take_census([*unnumbered, late], MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.counts == {"work": 1}
    assert census.unowned == (late,)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_marker_is_no_sample(missing: int) -> None:
    """Whichever it is: somebody else has the records."""
    records = window(kernel("work", 1000, 2000, 20))
    markers = [a for a in records if a.name == "fill"]
    records.remove(markers[missing])
    with pytest.raises(MissingMarkerError) as caught:
        take_census(records, MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert caught.value.marker == MARKERS._fields[missing]
    assert caught.value.hint


def test_a_forged_marker_is_no_sample() -> None:
    """Two records of one marker: one of them is not the evaluator's."""
    records = window(kernel("work", 1000, 2000, 20))
    with pytest.raises(MissingMarkerError):
        take_census([*records, records[-1]], MARKERS, fence_ns=FENCE_NS, host_ns=90)


def test_a_kernel_of_the_markers_name_is_none() -> None:
    """The same fill with another grid is work of the call."""
    own = Activity("kernel", "fill", 1000, 1100, 20, 7, 8)
    census = take_census(window(own), MARKERS, fence_ns=FENCE_NS, host_ns=90)
    assert census.owned == (own,)


@pytest.mark.parametrize("record", [kernel("k", 0, 10, 20), kernel("k", 20, 10, 20)])
def test_a_record_without_timestamps_is_an_error(record: Activity) -> None:
    """A lost record must not become a number, nor be taken for one from before the call."""
    require_sound(window())
    with pytest.raises(InfraError, match="timestamps"):
        take_census(window(record), MARKERS, fence_ns=FENCE_NS, host_ns=90)


@pytest.mark.parametrize("dropped", [1, None])
def test_dropped_records_are_an_error_even_if_nobody_counts_them(dropped: int | None) -> None:
    """An unknown number is not zero."""
    with pytest.raises(InfraError, match="dropped"):
        require_sound(window(), dropped=dropped)


def test_the_signature_tells_kernel_sets_apart_and_nothing_else() -> None:
    """Order and durations do not matter, names and numbers of launches do."""

    def signature(*names: str) -> str:
        works = [kernel(n, 1000 + i, 1500 + i, 20 + i) for i, n in enumerate(names)]
        census = take_census(window(*works), MARKERS, fence_ns=FENCE_NS, host_ns=90)
        return census.signature

    assert signature("a", "b") == signature("b", "a")
    assert signature("a", "b") != signature("a")
    assert signature("a") != signature("a", "a")


def test_a_timed_call_that_lacks_most_kernels_is_named_by_them() -> None:
    """Half of the launches or more are gone."""
    checked = [{"prepare": 1, "attend": 2, "merge": 1}]
    assert lacking(checked, [{"attend": 2}]) == ("merge", "prepare")
    assert lacking(checked, [{}]) == ("attend", "merge", "prepare")
    assert lacking(checked, [{"attend": 2, "merge": 1}]) == ()
    assert lacking([], [{"attend": 2}]) == ()


def test_kernel_sets_may_vary() -> None:
    """Other names in the same number, or one launch less, are no evidence."""
    assert lacking([{"ping": 1, "clear": 1}], [{"pong": 1, "clear": 1}]) == ()
    assert lacking([{"ping": 1, "clear": 1}, {"ping": 1}], [{"pong": 1}]) == ()


@given(st.lists(st.tuples(st.integers(11, 90), st.integers(1, 10_000)), max_size=12))
def test_every_record_is_in_one_place(launches: list[tuple[int, int]]) -> None:
    """Owned, unowned or between the last two markers, and never in two of them."""
    taken = {10, 50, 60}
    others = [
        kernel(f"k{i}", start, start + 5, correlation)
        for i, (correlation, start) in enumerate(launches)
        if correlation not in taken
    ]
    census = take_census(window(*others), MARKERS, fence_ns=FENCE_NS, host_ns=90)
    evaluators = [a for a in others if 50 < a.correlation < 60]
    assert sorted([*census.owned, *census.unowned, *evaluators]) == sorted(others)
