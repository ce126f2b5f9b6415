"""Outputs whose numbers have fewer bits than their type: work done in less precision.

Half the bits of a float32 state can be lost within an honest bound where honest kernels round as
much in between. That the stored numbers themselves have no more bits is seen in the bits, whatever
the bound is. It says nothing of a number that was rounded and then changed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopt_harness.schema import Definition

__all__ = ["coarse_outputs"]

_LAYOUTS = {
    "float32": ("int32", 23, 10),
    "float16": ("int16", 10, 3),
    "bfloat16": ("int16", 7, 3),
}
"""By type: integers of its size, bits of its mantissa, and those of the next type below: TF32 and
float16 under float32, float8_e4m3 under both types of 16 bits."""
_SHARE = 0.99
"""Of the numbers that are neither zero nor infinite."""
_HONEST_SHARE = 0.5
"""Above it in the reference, an output is coarse by nature: counts, copies of coarse inputs."""
_LEAST = 64
"""Numbers that it takes to say so."""
_MOST = 1 << 14
"""Numbers that are looked at."""


def coarse_outputs(
    definition: Definition, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> list[str]:
    """Says of each such output what it is.

    Args:
        definition: the operator.
        expected: the reference's unrounded outputs, by name.
        actual: the candidate's outputs, by name, in the declared form.
    """
    found = []
    for name, spec in definition.outputs.items():
        layout = _LAYOUTS.get(spec.dtype)
        if layout is None:
            continue
        share = _coarse_share(actual[name], layout)
        if share is None or share < _SHARE:
            continue
        honest = _coarse_share(expected[name].to(actual[name].dtype), layout)
        if honest is not None and honest < _HONEST_SHARE:
            found.append(
                f"{share:.0%} of {name!r} ({spec.dtype}) have {layout[2]} bits of mantissa "
                f"or fewer, of the reference's {honest:.0%}"
            )
    return found


def _coarse_share(tensor: Any, layout: tuple[str, int, int]) -> float | None:
    """Share of the finite numbers other than zero that the smaller type has; None of too few."""
    import torch

    integers, bits, fewer = layout
    sample = tensor.reshape(-1)[:: -(-tensor.numel() // _MOST) or 1].contiguous()
    counted = sample.isfinite() & (sample != 0)
    total = int(counted.sum())
    if total < _LEAST:
        return None
    low = sample.view(getattr(torch, integers)) & ((1 << (bits - fewer)) - 1)
    return int(((low == 0) & counted).sum()) / total
