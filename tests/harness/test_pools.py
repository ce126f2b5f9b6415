"""Which workloads keep their input sets."""

from __future__ import annotations

from kopt_harness.pools import PoolMemory


def test_the_longest_unused_workload_goes_first() -> None:
    """Within the cap nothing goes; beyond it the oldest do, never the one in use."""
    pools = PoolMemory(max_bytes=100)
    for uuid in ("a", "b", "c"):
        assert pools.enter(uuid) == []
        pools.add(uuid, 30)
    pools.enter("a")
    pools.add("a", 50)
    assert pools.enter("d") == ["b", "c"]


def test_a_workload_that_is_too_large_alone_is_kept_while_in_use() -> None:
    """The cap bounds what is kept, not what is needed."""
    pools = PoolMemory(max_bytes=10)
    pools.enter("big")
    pools.add("big", 1000)
    assert pools.enter("big") == []
    assert pools.enter("next") == ["big"]
    pools.drop("big")
    assert pools.known() == ["next"]
