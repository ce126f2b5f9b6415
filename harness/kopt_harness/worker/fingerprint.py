"""Checksums of outputs that are taken where the work on them should be finished.

A fingerprint reads a strided sample of each tensor, from an offset that candidate code does
not know, and weights it by position. Two that differ prove that somebody wrote in between.
Operators are bound when this module is imported, before candidate code can replace them, and
taken from the class of PyTorch that Python code cannot change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

__all__ = ["SAMPLE_WORDS", "Seal", "checksums", "reseal", "seal", "totals", "values"]

SAMPLE_WORDS = 1 << 12
"""Four-byte words that are read of a tensor; every word where it has no more."""

_BASE: Any = torch._C.TensorBase  # noqa: SLF001  the public class can be changed
_BYTES, _WORDS, _LONG = torch.uint8, torch.int32, torch.int64
_device = _BASE.device.__get__


class Seal(NamedTuple):
    """What was read of some tensors at one moment."""

    samples: dict[str, Any]
    """The sampled views, by name."""
    handle: Any
    """What the device gave; values come of it after synchronisation."""


def seal(device: Any, tensors: Mapping[str, Any], *, words: int = SAMPLE_WORDS) -> Seal:
    """Enqueues checksums of tensors on the current stream; does not wait.

    Args:
        device: whose stream.
        tensors: by name.
        words: four-byte words that are read of each at most.
    """
    filled = {name: tensor for name, tensor in tensors.items() if _BASE.numel(tensor)}
    samples = {name: _sample(tensor, words) for name, tensor in filled.items()}
    return Seal(samples, device.fingerprint(list(samples.values())))


def reseal(device: Any, taken: Seal) -> Seal:
    """The same places once more."""
    return Seal(taken.samples, device.fingerprint(list(taken.samples.values())))


def values(device: Any, taken: Seal) -> dict[str, int]:
    """Checksum by name; what enqueued them must have been waited for."""
    return dict(zip(taken.samples, device.read_fingerprint(taken.handle), strict=True))


def checksums(samples: Sequence[Any]) -> list[Any]:
    """One zero-dimensional tensor for each sample: what devices made of PyTorch tensors give."""
    sums = []
    for sample in samples:
        weights = _weights(str(_device(sample)), _BASE.numel(sample))
        sums.append(_BASE.sum(_BASE.mul(_BASE.to(sample, _LONG), weights)))
    return sums


def totals(sums: Sequence[Any]) -> list[int]:
    """What ``checksums`` has summed; waits for it."""
    return [int(_BASE.item(total)) for total in sums]


@cache
def _weights(device: str, count: int) -> Any:
    return torch.arange(1, 2 * count + 1, 2, dtype=_LONG, device=device)


def _sample(tensor: Any, words: int) -> Any:
    flat = _BASE.view(_BASE.reshape(_BASE.detach(tensor), -1), _BYTES)
    if _BASE.numel(flat) % 4 == 0 and _BASE.data_ptr(flat) % 4 == 0:
        flat = _BASE.view(flat, _WORDS)
    step = -(-_BASE.numel(flat) // words)
    start = secrets.randbelow(step)
    count = -(-(_BASE.numel(flat) - start) // step)
    return _BASE.as_strided(flat, (count,), (step,), _BASE.storage_offset(flat) + start)
