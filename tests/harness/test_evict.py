"""Caches that a solution has filled are emptied by the judge, where the solution ran."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from kopt_harness.activity import last_processors
from kopt_harness.worker.devices import open_device
from kopt_harness.worker.devices.cpu import CpuDevice

MB = 1 << 20


def dirty_bytes() -> int:
    """Private memory of this process that has been written."""
    fields = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = (field for field in fields if field.startswith("Private_Dirty:"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def device() -> CpuDevice:
    """The processor."""
    found = open_device("cpu", index=0)
    assert isinstance(found, CpuDevice)
    return found


@pytest.mark.parametrize("processors", [1, 2])
def test_as_much_is_written_as_was_asked_for(device: CpuDevice, processors: int) -> None:
    """However many processors share it."""
    own = sorted(os.sched_getaffinity(0))[:processors]
    before = dirty_bytes()
    device.evict(40 * MB, own)
    assert dirty_bytes() - before >= 39 * MB


def test_a_private_cache_is_evicted_whole(device: CpuDevice) -> None:
    """Even where little is asked for, 8 MiB are written on each processor."""
    before = dirty_bytes()
    device.evict(MB, sorted(os.sched_getaffinity(0))[:1])
    assert dirty_bytes() - before >= 7 * MB


def test_the_judge_goes_back_to_where_it_may_run(device: CpuDevice) -> None:
    """Processors that it must not use are left alone."""
    allowed = os.sched_getaffinity(0)
    device.evict(MB, [max(os.cpu_count() or 1, *allowed) + 1])
    device.evict(MB, sorted(allowed))
    assert os.sched_getaffinity(0) == allowed


def test_a_warm_state_writes_nothing(device: CpuDevice) -> None:
    """Nothing was asked for."""
    before = dirty_bytes()
    device.evict(0, [0])
    assert dirty_bytes() - before < MB


def test_the_processors_of_all_threads_are_named() -> None:
    """Each of them may have left something in a cache of its own."""
    places = sorted(os.sched_getaffinity(0))
    done = threading.Event()

    def stay(place: int, there: threading.Event) -> None:
        os.sched_setaffinity(0, {place})
        there.set()
        done.wait()

    arrived = [threading.Event() for _ in places]
    threads = [
        threading.Thread(target=stay, args=(place, event))
        for place, event in zip(places, arrived, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in arrived:
        event.wait()
    try:
        assert set(last_processors([os.getpid()])) >= set(places)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_process_that_is_gone_ran_nowhere() -> None:
    """It may have ended between two looks."""
    assert last_processors([2**22 + 1]) == []
