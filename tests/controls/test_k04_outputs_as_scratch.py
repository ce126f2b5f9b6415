"""Outputs that are written in several passes."""

from __future__ import annotations


def test_outputs_may_be_used_as_scratch(passes) -> None:
    """They are the solution's own until it returns."""
    passes("k04-outputs-as-scratch", 0, 10)
