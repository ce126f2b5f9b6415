"""Timers: what each promises, where it refuses to measure, and the span of CUPTI's records."""

from __future__ import annotations

import time

import pytest
from kopt_harness.bench.timers import cupti, events, make_timer, timer_names
from kopt_harness.bench.timers.census import Activity
from kopt_harness.bench.timers.cpu import MAX_FLUSH_BYTES
from kopt_harness.errors import NotFoundError, UnavailableError
from kopt_harness.targets import list_targets

pytestmark = pytest.mark.alone

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

    def seal(self) -> None:
        """Has no outputs."""


def test_the_timers_are_those_that_results_may_name() -> None:
    """A file of the folder is a timer; helpers are not."""
    assert timer_names() == ("cpu", "cupti", "events", "simulated")


def test_events_are_nobodys_default() -> None:
    """They see one stream only, so somebody has to ask for them."""
    assert {target.kind: target.timer for target in list_targets()} == {
        "cpu": "cpu",
        "cuda": "cupti",
        "simulated": "simulated",
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
        ("simulated", "cold-clean", "cpu"),
        ("simulated", "cold", "cuda:0"),
    ],
)
def test_a_timer_refuses_what_it_cannot_measure(name: str, cache: str, device: str) -> None:
    """Wall time of an asynchronous call, or a cache state that nobody can make, is no number."""
    with pytest.raises(UnavailableError) as caught:
        make_timer(name, cache=cache, torch_device=device, l2_bytes=1 << 20)
    assert caught.value.hint


class Record:
    """A kernel as CUPTI's Python binding hands it over."""

    kind = 10
    name = "scan_kernel"
    start = 1_000
    end = 3_500
    correlation_id = 77
    stream_id = 13
    grid_x = 132


class OldRecord:
    """A copy of a version without numbers of launches and streams."""

    start = 1_000
    end = 1_200
    bytes = 4096


def test_a_record_of_cupti_keeps_its_launch_and_its_grid() -> None:
    """The number of the API call and the blocks in x are what the census needs."""
    expected = Activity("kernel", "scan_kernel", 1_000, 3_500, 77, 13, 132)
    assert cupti.read_record(Record(), "kernel") == expected


def test_a_record_with_fewer_fields_is_read_as_far_as_it_goes() -> None:
    """Without numbers the census goes by time."""
    assert cupti.read_record(OldRecord(), "memcpy") == Activity(
        "memcpy", "memcpy", 1_000, 1_200, 0, 0, 4096
    )


class Hooked:
    """A call in which Triton compiles a kernel."""

    def __init__(self, compilations: int) -> None:
        self.compilations = compilations

    def run(self) -> None:
        """As Triton calls its hook, if it is there."""
        from triton import knobs

        hook = knobs.runtime.jit_post_compile_hook
        for _ in range(self.compilations if hook is not None else 0):
            hook(key="k", repr="r", fn=None, compile={}, is_manual_warmup=False)


def test_compilations_of_triton_are_counted_from_the_start_of_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is hooked in where somebody else has hooked in before."""
    knobs = pytest.importorskip("triton").knobs
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", None)
    watch = cupti.CompileWatch()
    for compilations in (2, 0):
        watch.start()
        Hooked(compilations).run()
        assert watch.stop() == compilations
    other = cupti.CompileWatch()
    other.start()
    Hooked(1).run()
    assert other.stop() == 0


def test_events_that_miss_long_work_know_it() -> None:
    """A device that was busy long after the second event did work on another stream."""
    assert events.sees_too_little(5_000, 255_000)
    assert not events.sees_too_little(250_000, 270_000)
    assert not events.sees_too_little(5_000, 60_000)
