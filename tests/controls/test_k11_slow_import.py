"""Seconds before the first call."""

from __future__ import annotations


def test_an_import_may_take_seconds(passes) -> None:
    """Loading has a budget of its own, and no call is timed with it."""
    evaluation = passes("k11-slow-import")
    (row,) = evaluation.workloads
    assert row.timing is not None
    assert max(row.timing["samples_ns"]) < 2e9
