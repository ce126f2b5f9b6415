"""Timers: what each promises, where it refuses to measure, and the span of CUPTI's records."""

from __future__ import annotations

import time

import pytest
from kopt_harness.bench.timers import cupti, make_timer, timer_names
from kopt_harness.bench.timers.cpu import MAX_FLUSH_BYTES
from kopt_harness.errors import InfraError, NotFoundError, UnavailableError
from kopt_harness.targets import list_targets

MS = 1_000_000


class Sleep:
    """A call that takes a known time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0

    def run(self) -> None:
        """Waits."""
        self.calls += 1
        time.sleep(self.seconds)


def test_the_timers_are_the_three_that_results_may_name() -> None:
    """A file of the folder is a timer; helpers are not."""
    assert timer_names() == ("cpu", "cupti", "events")


def test_events_are_nobodys_default() -> None:
    """They see one stream only, so somebody has to ask for them."""
    assert {target.kind: target.timer for target in list_targets()} == {
        "cpu": "cpu",
        "cuda": "cupti",
    }


def test_an_unknown_timer_is_named_with_those_there_are() -> None:
    """Never a fallback to another one."""
    with pytest.raises(NotFoundError, match="sundial") as caught:
        make_timer("sundial", cache="cold", torch_device="cpu", l2_bytes=None)
    assert "cupti" in caught.value.hint


@pytest.mark.parametrize(
    ("cache", "l2_bytes", "expected"),
    [
        ("cold", 1 << 20, 2 << 20),
        ("cold", 1 << 30, MAX_FLUSH_BYTES),
        ("cold", None, MAX_FLUSH_BYTES),
        ("warm", 1 << 20, 0),
    ],
)
def test_the_flush_is_as_large_as_it_says(cache: str, l2_bytes: int | None, expected: int) -> None:
    """Twice the last-level cache where that is affordable, nothing when warm."""
    timer = make_timer("cpu", cache=cache, torch_device="cpu", l2_bytes=l2_bytes)
    assert timer.flush_bytes == expected
    timer.flush()


def test_the_cpu_timer_measures_one_call_and_all_of_it() -> None:
    """A sleep of 20 ms is never reported as less; the flush is not part of it."""
    timer = make_timer("cpu", cache="cold", torch_device="cpu", l2_bytes=1 << 20)
    call = Sleep(0.02)
    timer.flush()
    sample = timer.measure(call)
    assert call.calls == 1
    assert sample.ns >= 20 * MS
    assert sample.details == {}


def test_the_clock_cannot_be_replaced_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was bound before candidate code is loaded."""
    timer = make_timer("cpu", cache="warm", torch_device="cpu", l2_bytes=None)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    assert timer.measure(Sleep(0.005)).ns >= 5 * MS


@pytest.mark.parametrize(
    ("name", "cache", "device"),
    [
        ("cpu", "cold-clean", "cpu"),
        ("cpu", "lukewarm", "cpu"),
        ("cpu", "cold", "cuda:0"),
        ("cupti", "cold", "cpu"),
        ("events", "cold", "cpu"),
    ],
)
def test_a_timer_refuses_what_it_cannot_measure(name: str, cache: str, device: str) -> None:
    """Wall time of an asynchronous call, or a cache state that nobody can make, is no number."""
    with pytest.raises(UnavailableError) as caught:
        make_timer(name, cache=cache, torch_device=device, l2_bytes=1 << 20)
    assert caught.value.hint


def activity(name: str, start_ns: int, end_ns: int, kind: str = "kernel") -> cupti._Activity:
    """One record."""
    return cupti._Activity(kind, name, start_ns, end_ns)


def test_the_span_is_first_start_to_last_end_over_all_streams() -> None:
    """Overlapping work counts once in the span, each in its own busy time."""
    records = [
        activity("second", 1500, 4000),
        activity("first", 1000, 3000),
        activity("second", 5000, 5100),
        activity("memset", 3500, 3600, kind="memset"),
    ]
    sample = cupti._sample(records, 400, 90)
    assert sample.ns == 4100
    assert sample.details["launches"] == 4
    assert sample.details["before_first_ns"] == 600
    assert sample.details["busy_ns"] == 2500 + 2000 + 100 + 100
    assert sample.details["kernels"][0] == {"name": "second", "ns": 2600}


def test_a_call_without_device_work_says_so() -> None:
    """Zero launches are what the judge flags; they are not taken for a fast kernel."""
    assert cupti._sample([], 400, 90).details["launches"] == 0


@pytest.mark.parametrize("record", [activity("k", 0, 10), activity("k", 20, 10)])
def test_a_record_without_timestamps_is_an_error(record: cupti._Activity) -> None:
    """A lost record must not become a number, nor be taken for one from before the call."""
    good = [activity("good", 1000, 2000)]
    cupti._require_timestamps(good)
    with pytest.raises(InfraError, match="timestamps"):
        cupti._require_timestamps([*good, record])
