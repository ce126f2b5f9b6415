"""Compilers, threads and cache files."""

from __future__ import annotations


def test_what_a_first_call_compiles_and_keeps_is_not_tampering(passes) -> None:
    """A compiler process, files in the cache folder and idle threads are seen in call 0 only."""
    passes("k03-compiles-in-first-call")
