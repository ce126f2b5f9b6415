"""Dispatch by shape, addresses in keys, words in comments."""

from __future__ import annotations


def test_dispatch_and_complete_keys_are_honest(passes) -> None:
    """A key of all addresses and shapes is no cache of answers, and a comment is no code."""
    passes("k07-dispatch-table", 0, 10)
