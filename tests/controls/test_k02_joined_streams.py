"""K02: several streams that are forked from the current one and joined to it."""

from __future__ import annotations


def test_work_on_two_joined_streams_passes(passes_simulated) -> None:
    """The span covers both, and everything is done when the current stream is."""
    evaluation = passes_simulated("k02-joined-streams")
    (row,) = evaluation.workloads
    assert row.timing is not None
    assert min(row.timing["samples_ns"]) >= 12_000
