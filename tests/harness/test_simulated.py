"""The simulated device keeps the rules that a GPU has: order, time, records, faults."""

from __future__ import annotations

import pytest
import torch
from kopt_harness.simulated import (
    DeviceFaultError,
    Event,
    Gpu,
    Graph,
    api,
    compile_kernel,
    empty,
    gpu,
    host_function,
    launch,
    memcpy,
    memset,
    new_stream,
    persist,
    synchronize,
    use_stream,
)
from kopt_harness.simulated.engine import LAUNCH_NS
from kopt_harness.simulated.l2 import L2, Range
from kopt_harness.simulated.machine import Machine
from kopt_harness.simulated.memory import OutOfMemoryError

KIB = 1024


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A device of this test alone, which records."""
    monkeypatch.setattr(api, "_devices", [])
    gpu().trace.enable()
    return gpu()


def test_work_is_pending_until_somebody_waits() -> None:
    """The launch returns at once, and nothing has happened."""
    place = torch.zeros(4)
    launch(lambda: place.fill_(1), ns=10_000)
    assert place.sum() == 0
    synchronize()
    assert place.sum() == 4


def test_a_stream_keeps_its_order(device: Gpu) -> None:
    """Each launch begins where the one before it has ended."""
    done: list[int] = []
    for number in range(3):
        launch(lambda n=number: done.append(n), ns=5_000)
    synchronize()
    assert done == [0, 1, 2]
    first, second, third = device.trace.take()
    assert first.end_ns == second.start_ns
    assert second.end_ns == third.start_ns
    assert third.end_ns - first.start_ns == 15_000


def test_streams_run_beside_each_other_unless_an_event_says_so(device: Gpu) -> None:
    """Without an event the short kernel is first, with one it waits."""
    order: list[str] = []
    side = new_stream()
    launch(lambda: order.append("long"), ns=50_000, stream=side)
    launch(lambda: order.append("short"), ns=1_000)
    synchronize()
    assert order == ["short", "long"]
    event = Event()
    launch(lambda: order.append("long"), ns=50_000, stream=side)
    event.record(side)
    event.wait()
    launch(lambda: order.append("short"), ns=1_000)
    synchronize()
    assert order[2:] == ["long", "short"]
    records = device.trace.take()
    assert records[-1].start_ns >= records[-2].end_ns


def test_an_event_measures_its_own_stream_only() -> None:
    """Work on another stream is not between two events of this one."""
    begin, end = Event(), Event()
    begin.record()
    launch(lambda: None, ns=250_000, stream=new_stream())
    end.record()
    synchronize()
    assert begin.elapsed_ns(end) < 10_000


def test_the_current_stream_belongs_to_a_block() -> None:
    """As with a context manager of PyTorch."""
    side = new_stream()
    with use_stream(side):
        launch(lambda: None, name="inside")
    assert side.pending[0].name == "inside"
    synchronize()


def test_launches_are_numbered_in_the_order_of_their_calls(device: Gpu) -> None:
    """Whatever stream they go to, and whenever they run."""
    side = new_stream()
    launch(lambda: None, name="a", ns=90_000, stream=side)
    launch(lambda: None, name="b", ns=1_000)
    memset(torch.ones(4))
    memcpy(torch.ones(4), torch.ones(4))
    synchronize()
    by_number = sorted(device.trace.take(), key=lambda a: a.correlation)
    assert [a.name for a in by_number] == ["a", "b", "memset", "memcpy"]
    assert [a.size for a in by_number[2:]] == [16, 16]


def test_a_graph_runs_when_it_is_launched_and_keeps_addresses(device: Gpu) -> None:
    """Capture runs nothing; a replay reads what lies at the old addresses by then."""
    source, target = torch.ones(4), torch.zeros(4)
    graph = Graph(device)
    with graph.capture():
        launch(lambda: target.copy_(source), name="copy")
        launch(lambda: target.add_(1), name="add")
    synchronize()
    assert target.sum() == 0
    source.fill_(5)
    graph.replay()
    synchronize()
    assert target.tolist() == [6.0] * 4
    records = device.trace.take()
    assert {a.name for a in records} == {"copy", "add"}
    assert len({a.correlation for a in records}) == 1


def test_a_launch_to_a_named_stream_is_not_captured(device: Gpu) -> None:
    """It runs during capture, and replays are without it."""
    graph = Graph(device)
    with graph.capture():
        launch(lambda: None, name="captured")
        launch(lambda: None, name="missed", stream=device.default_stream)
    synchronize()
    assert [a.name for a in device.trace.take()] == ["missed"]
    graph.replay()
    synchronize()
    assert [a.name for a in device.trace.take()] == ["captured"]


def test_a_callback_of_the_stream_can_launch(device: Gpu) -> None:
    """Its launch has a later number than everything that was launched before."""
    launch(lambda: None, name="first")
    host_function(lambda: launch(lambda: None, name="second"))
    launch(lambda: None, name="third")
    synchronize()
    numbers = {a.name: a.correlation for a in device.trace.take()}
    assert numbers["second"] > numbers["third"]


def test_a_fault_is_everybodys_from_then_on() -> None:
    """It shows when somebody waits, and in every call afterwards."""
    launch(lambda: None, name="broken", faults=True)
    launch(lambda: None, name="innocent")
    with pytest.raises(DeviceFaultError, match="broken"):
        synchronize()
    with pytest.raises(DeviceFaultError, match="broken"):
        launch(lambda: None)


def test_a_launch_that_cannot_be_served_leaves_an_error_and_nothing_else(device: Gpu) -> None:
    """Code that does not look goes on with whatever was in its output."""
    place = torch.zeros(4)
    launch(lambda: place.fill_(1), name="greedy", shared_bytes=1 << 20)
    synchronize()
    assert place.sum() == 0
    assert device.trace.take() == []
    assert "greedy" in (device.take_last_error() or "")
    assert device.take_last_error() is None


def test_waiting_for_an_event_that_nobody_records_is_no_endless_loop() -> None:
    """A deadlock is an error with a name."""
    Event().wait()
    with pytest.raises(DeviceFaultError, match="deadlock"):
        synchronize()


def test_a_stream_may_end_with_waiting_for_an_event() -> None:
    """Forked, worked, joined: there is nothing left to do then."""
    side, joined, place = new_stream(), Event(), torch.zeros(1)
    launch(lambda: place.fill_(1), stream=side)
    joined.record(side)
    joined.wait()
    synchronize()
    assert place == 1


def test_launching_takes_host_time_and_so_does_compiling(device: Gpu) -> None:
    """Both are on the clock of the records."""
    begin = device.timestamp()
    launch(lambda: None)
    assert device.timestamp() - begin == LAUNCH_NS
    compile_kernel("k")
    assert device.timestamp() - begin > 100 * LAUNCH_NS
    assert device.compilations == 1


def test_bytes_that_are_resident_come_faster(device: Gpu) -> None:
    """The second read of the same tensor is a warm one."""
    data = torch.zeros(256 * KIB)
    for _ in range(2):
        launch(lambda: None, reads=[data])
    synchronize()
    cold, warm = (a.end_ns - a.start_ns for a in device.trace.take())
    assert cold > 2 * warm


def test_the_cache_forgets_what_was_not_used_for_longest() -> None:
    """As much as it has room for stays."""
    cache = L2(64 * KIB)
    cache.touch([Range(0, 48 * KIB)])
    cache.touch([Range(1 << 20, 32 * KIB)])
    assert cache.resident_bytes([Range(0, 48 * KIB)]) == 32 * KIB
    assert cache.touch([Range(1 << 20, 32 * KIB)]).miss_bytes == 0


def test_persisting_lines_survive_a_flush_until_they_are_reset() -> None:
    """A written flush alone does not make them cold."""
    cache = L2(64 * KIB, persisting_limit=16 * KIB)
    ours = [Range(0, 32 * KIB)]
    cache.persist(ours)
    cache.touch(ours)
    cache.write_scratch(128 * KIB)
    assert cache.resident_bytes(ours) == 16 * KIB
    cache.reset_persisting()
    cache.write_scratch(128 * KIB)
    assert cache.resident_bytes(ours) == 0


def test_a_small_flush_leaves_lines_behind() -> None:
    """Half a cache of scratch evicts half of the cache."""
    cache = L2(64 * KIB)
    cache.touch([Range(0, 64 * KIB)])
    cache.write_scratch(32 * KIB)
    assert cache.resident_bytes([Range(0, 64 * KIB)]) == 32 * KIB


def test_a_set_aside_is_needed_to_persist(device: Gpu) -> None:
    """Without a limit the window has no effect."""
    data = torch.zeros(KIB)
    persist(data)
    assert not device.l2.resident_bytes([Range(data.data_ptr(), data.nbytes)])
    persist(data, set_aside_bytes=64 * KIB)
    assert device.l2.resident_bytes([Range(data.data_ptr(), data.nbytes)])


def test_freed_blocks_come_back_as_they_were() -> None:
    """What a caching allocator does, and how to take the contents away."""
    first = empty((16,), torch.float32)
    first.fill_(3)
    del first
    assert empty((16,), torch.float32).tolist() == [3.0] * 16
    gpu().memory.poison_free()
    assert empty((16,), torch.float32).isnan().all()


def test_memory_ends_and_what_is_lost_stays_lost(device: Gpu) -> None:
    """Cached blocks are in use until the cache is emptied; a dead process may keep its own."""
    before = device.memory.free_bytes()
    block = empty((1 << 20,), torch.uint8)
    del block
    assert device.memory.free_bytes() == before - (1 << 20)
    device.memory.empty_cache()
    assert device.memory.free_bytes() == before
    device.memory.lose(before)
    with pytest.raises(OutOfMemoryError):
        empty((1,), torch.uint8)


def test_heat_and_company_make_kernels_slower(device: Gpu) -> None:
    """Half the clock, or a second process, is twice the time."""
    machine = Machine()
    assert machine.slowdown == 1
    machine.overheat(sm_mhz=500)
    assert machine.slowdown == 2
    assert machine.conditions()["throttle_reasons"]
    machine.cool()
    machine.processes = {1: 0, 2: 0}
    assert machine.slowdown == 2
    device.machine.overheat(sm_mhz=250)
    launch(lambda: None, ns=1_000)
    synchronize()
    (record,) = device.trace.take()
    assert record.end_ns - record.start_ns == 4_000


def test_a_full_buffer_drops_records_and_counts_them(device: Gpu) -> None:
    """The count starts again when it is read; a recorder may be unable to count."""
    device.trace.capacity = 2
    for _ in range(5):
        launch(lambda: None)
    synchronize()
    assert len(device.trace.take()) == 2
    assert device.trace.dropped() == 3
    assert device.trace.dropped() == 0
    device.trace.counts_drops = False
    assert device.trace.dropped() is None


def test_the_same_program_takes_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is computed: two runs have the same records."""

    def run() -> list[object]:
        monkeypatch.setattr(api, "_devices", [])
        gpu().trace.enable()
        side = new_stream()
        for number in range(4):
            launch(lambda: None, ns=1_000 * number, stream=side if number % 2 else None)
        synchronize()
        return list(gpu().trace.take())

    assert run() == run()
