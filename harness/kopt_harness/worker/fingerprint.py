"""Checksums of outputs that are taken where the work on them should be finished.

A fingerprint reads a strided sample of each tensor, from an offset that candidate code does
not know, and weights it by position. Two that differ prove that somebody wrote in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

__all__ = ["Seal", "checksums", "reseal", "seal", "values"]

SAMPLE_WORDS = 1 << 14
"""Four-byte words that are read of a tensor; every word where it has no more."""


class Seal(NamedTuple):
    """What was read of some tensors at one moment."""

    samples: dict[str, Any]
    """The sampled views, by name."""
    handle: Any
    """What the device gave; values come of it after synchronisation."""


def seal(device: Any, tensors: Mapping[str, Any]) -> Seal:
    """Enqueues checksums of contiguous tensors on the current stream; does not wait."""
    samples = {name: _sample(tensor) for name, tensor in tensors.items() if tensor.numel()}
    return Seal(samples, device.fingerprint(list(samples.values())))


def reseal(device: Any, taken: Seal) -> Seal:
    """The same places once more."""
    return Seal(taken.samples, device.fingerprint(list(taken.samples.values())))


def values(device: Any, taken: Seal) -> dict[str, int]:
    """Checksum by name; what enqueued them must have been waited for."""
    return dict(zip(taken.samples, device.read_fingerprint(taken.handle), strict=True))


def checksums(samples: Sequence[Any]) -> list[Any]:
    """One zero-dimensional tensor for each sample: what devices made of PyTorch tensors give."""
    import torch

    sums = []
    for sample in samples:
        weights = _weights(str(sample.device))[: sample.numel()]
        sums.append(torch.sum(sample.to(torch.int64) * weights))
    return sums


@cache
def _weights(device: str) -> Any:
    import torch

    return torch.arange(1, 2 * SAMPLE_WORDS + 1, 2, dtype=torch.int64, device=device)


def _sample(tensor: Any) -> Any:
    import torch

    flat = tensor.detach().reshape(-1).view(torch.uint8)
    if flat.numel() % 4 == 0 and flat.data_ptr() % 4 == 0:
        flat = flat.view(torch.int32)
    step = -(-flat.numel() // SAMPLE_WORDS)
    return flat[secrets.randbelow(step) :: step]
