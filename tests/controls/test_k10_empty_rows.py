"""Infinities where the definition has them."""

from __future__ import annotations


def test_minus_infinity_is_the_right_answer_for_an_empty_row(passes) -> None:
    """Also on stress inputs, where whole rows select nothing."""
    passes("k10-empty-rows")
