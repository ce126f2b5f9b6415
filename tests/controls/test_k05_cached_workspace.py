"""Scratch memory that is kept."""

from __future__ import annotations


def test_a_workspace_may_be_kept(passes) -> None:
    """By device and shape, with counters that are zeroed in every call."""
    passes("k05-cached-workspace", 0, 10)
