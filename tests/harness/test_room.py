"""Memory is given out in order, never more than there is."""

from __future__ import annotations

import threading
import time

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.room import Room, pair_bytes, work_bytes

GIB = 1 << 30


def test_no_more_is_taken_than_there_is() -> None:
    """Sixteen threads of various sizes; the sum of those inside stays below."""
    room, lock = Room(100), threading.Lock()
    inside: list[int] = []
    most: list[int] = []

    def work(nbytes: int) -> None:
        with room.taken(nbytes):
            with lock:
                inside.append(nbytes)
                most.append(sum(inside))
            time.sleep(0.005)
            with lock:
                inside.remove(nbytes)

    threads = [threading.Thread(target=work, args=(10 + 7 * n % 60,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(most) == 16
    assert max(most) <= 100


def test_what_is_too_large_runs_alone_and_nobody_overtakes_it() -> None:
    """Small work that comes later waits, or the large one would wait for ever."""
    room = Room(100)
    order: list[str] = []
    started = threading.Event()

    def large() -> None:
        started.set()
        with room.taken(1000):
            order.append("large")

    def small() -> None:
        with room.taken(1):
            order.append("small")

    with room.taken(50):
        first = threading.Thread(target=large)
        first.start()
        started.wait(5)
        time.sleep(0.05)
        second = threading.Thread(target=small)
        second.start()
        time.sleep(0.05)
        assert order == []
    first.join(5)
    second.join(5)
    assert order == ["large", "small"]


@pytest.mark.parametrize(("alias", "pairs"), [("moe_fp8", (1, 6)), ("gdn_decode", (10, 30))])
def test_ten_pairs_fit_only_where_they_are_small(
    catalog: Catalog, alias: str, pairs: tuple[int, int]
) -> None:
    """Into 24 GiB: not of the experts with their weights, easily of a decode."""
    definition = catalog.resolve(alias)
    every = catalog.workloads(definition)
    each = pair_bytes(definition, every) + min(work_bytes(definition, w, 5) for w in every)
    assert pairs[0] <= 24 * GIB // each <= pairs[1]
