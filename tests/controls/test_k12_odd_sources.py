"""Sources as editors and generators leave them."""

from __future__ import annotations


def test_sources_need_not_be_plain(passes) -> None:
    """CRLF, other scripts, subfolders, several files, a line of thousands of characters."""
    passes("k12-odd-sources")
