"""Outputs that are stored with fewer bits than their type has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kopt_harness.check import coarse_outputs
from kopt_harness.schema import Definition


def found(definition: Definition, dtype: str, expected: Any, actual: Any) -> list[str]:
    """Of one output of a type, beside one that is as it should be."""
    fine = torch.randn(512, dtype=torch.float32)
    first, second = definition.outputs
    outputs = {
        first: definition.outputs[first].model_copy(update={"dtype": dtype}),
        second: definition.outputs[second].model_copy(update={"dtype": "float32"}),
    }
    changed = definition.model_copy(update={"outputs": outputs})
    return coarse_outputs(changed, {first: expected, second: fine}, {first: actual, second: fine})


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16])
def test_float32_with_the_bits_of_half_is_coarse(gdn_decode: Definition, kept: Any) -> None:
    """The bits say so, however near the numbers are."""
    exact = torch.randn(64, 128)
    (text,) = found(gdn_decode, "float32", exact.double(), exact.to(kept).float())
    assert "100% of 'output' (float32) have 10 bits of mantissa or fewer" in text


def test_bfloat16_with_the_bits_of_float8_is_coarse(gdn_decode: Definition) -> None:
    """So does a type of 16 bits."""
    exact = torch.randn(64, 128)
    rounded = exact.to(torch.float8_e4m3fn).to(torch.bfloat16)
    assert found(gdn_decode, "bfloat16", exact.double(), rounded)
    assert not found(gdn_decode, "bfloat16", exact.double(), exact.to(torch.bfloat16))


def test_what_is_coarse_by_nature_is_not_held_against_anybody(gdn_decode: Definition) -> None:
    """Counts, copies of coarse inputs, zeros, infinities, and too few numbers to say."""
    counts = torch.arange(1.0, 513.0)
    assert not found(gdn_decode, "float32", counts.double(), counts)
    few = torch.randn(63)
    assert not found(gdn_decode, "float32", few.double(), few.bfloat16().float())
    exact = torch.randn(8192)
    holes = torch.where(torch.arange(8192) % 2 == 0, torch.inf, exact)
    assert not found(gdn_decode, "float32", holes.double(), holes)
    assert not found(gdn_decode, "float32", exact.double(), torch.zeros(8192))
    assert not found(gdn_decode, "int32", exact.double(), exact.int())


def test_one_number_in_fifty_that_is_fine_is_enough(gdn_decode: Definition) -> None:
    """Less than 99 of 100 say nothing."""
    exact = torch.randn(8192)
    most = torch.where(torch.arange(8192) % 50 == 0, exact, exact.bfloat16().float())
    nearly_all = torch.where(torch.arange(8192) % 500 == 0, exact, exact.bfloat16().float())
    assert not found(gdn_decode, "float32", exact.double(), most)
    assert found(gdn_decode, "float32", exact.double(), nearly_all)


def test_large_outputs_are_looked_at_in_part(gdn_decode: Definition) -> None:
    """Every so many of its numbers."""
    exact = torch.randn(3 << 20)
    assert found(gdn_decode, "float32", exact, exact.bfloat16().float())
    assert not found(gdn_decode, "float32", exact, exact)
