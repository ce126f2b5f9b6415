"""K08: other kernels in each call, for honest reasons."""

from __future__ import annotations


def test_kernels_in_turn_and_a_fill_now_and_then_pass(passes_simulated) -> None:
    """Nothing is flagged: no call does without most of what another launches."""
    passes_simulated("k08-varying-kernels")
