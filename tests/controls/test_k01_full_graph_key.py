"""K01: a graph whose key has every address is fast at known addresses, and allowed."""

from __future__ import annotations


def test_a_graph_with_every_address_in_its_key_passes(passes_simulated) -> None:
    """It is captured again when a tensor has moved, and takes no longer then."""
    evaluation = passes_simulated("k01-full-graph-key")
    (row,) = evaluation.workloads
    assert row.timing is not None
    assert row.timing["timer"] == "simulated"
