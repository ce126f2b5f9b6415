"""The witness process: sees the contents of the arena, and knows nothing of right or wrong.

Run as ``python -P -m kopt_harness.worker.witness PARENT_PID CHANNEL_FD ARENA_FD``. It maps
the judge's arena as a candidate does and answers with digests of tensors. So that inputs
were distinct, or two outputs the same to the last bit, is known from what the calls were
given and left behind, not from what the judge believes to have put there.

A digest is a sum of 64-bit words times fixed random odd numbers, modulo 2^64, block by block,
so that digests of different runs can be compared. Contents that differ by chance have the same
with a probability near 2^-64; against somebody who looks for such a pair it is no defence.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from kopt_harness.layout import Arena
from kopt_harness.schema import Definition

from .devices import Device, open_device
from .limits import isolate_judge
from .phases import Phases
from .serve import serve
from .wire import Channel

__all__ = ["Witness", "main"]

_WORD_BYTES = 8
_BLOCK_WORDS = 1 << 20
"""8 MiB are weighted at once: what bounds the temporaries."""
_MODULUS = 1 << 64
_STEP = 0x9E3779B97F4A7C15
"""Odd, so that no block's part is lost when the next is added."""


class Witness:
    """Serves one session."""

    def __init__(self, arena_fd: int, isolation: dict[str, Any]) -> None:
        self._arena_fd = arena_fd
        self._isolation = isolation
        self._phases = Phases()
        self._device: Device
        self._definition: Definition
        self._weights: Any = None

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Opens the device and maps the arena."""
        with self._phases("open"):
            self._definition = Definition.model_validate(request["definition"])
            self._device = open_device(request["device_kind"], index=request["device_index"])
            arena = Arena.model_validate(request["arena"])
            self._device.attach(arena, self._arena_fd, request["export"])
            self._weights = _weights().to(self._device.torch_device)
        return {"isolation": self._isolation, "phases": self._phases.take()}

    def digest(self, request: dict[str, Any]) -> dict[str, Any]:
        """One digest over the named tensors at the places that they have now."""
        axes, shifts = request["axes"], request["shifts"]
        every = (*self._definition.input_shapes(axes), *self._definition.output_shapes(axes))
        by_name = {shape.name: shape for shape in every}
        total = 0
        with self._phases("digest"):
            for name in request["names"]:
                shape = by_name[name]
                tensor = self._device.tensor(name, shape.shape, shape.dtype, shifts[name])
                for part in self._sums(tensor):
                    total = (total * _STEP + part + 1) % _MODULUS
        return {"digest": f"{total:016x}", "phases": self._phases.take()}

    def _sums(self, tensor: Any) -> list[int]:
        """The weighted sum of each block; a last word is filled up with zeros."""
        raw = tensor.reshape(-1).view(torch.uint8)
        whole = raw.numel() // _WORD_BYTES * _WORD_BYTES
        words = [raw[:whole].view(torch.int64)]
        if whole < raw.numel():
            rest = raw.new_zeros(_WORD_BYTES)
            rest[: raw.numel() - whole] = raw[whole:]
            words.append(rest.view(torch.int64))
        parts = [block for run in words for block in run.split(_BLOCK_WORDS)]
        sums = [(block * self._weights[: block.numel()]).sum() for block in parts]
        # One transfer for all of them.
        found: list[int] = torch.stack(sums).tolist() if sums else []
        return found


def _weights() -> Any:
    """(words of a block,) odd int64, the same in every process."""
    rng = torch.Generator().manual_seed(1)
    low, high = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    return torch.randint(low, high, (_BLOCK_WORDS,), generator=rng) | 1


def main() -> None:
    """Serves requests until the orchestrator closes the channel."""
    parent_pid, channel_fd, arena_fd = (int(word) for word in sys.argv[1:4])
    witness = Witness(arena_fd, isolate_judge(parent_pid))
    names = ("open", "digest")
    serve(Channel.from_fd(channel_fd), {name: getattr(witness, name) for name in names})


if __name__ == "__main__":
    main()
