"""Calls a solution by either convention and brings its outputs into the arena.

Only the candidate process imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopt_harness.check import check_outputs
from kopt_harness.schema import Definition
from kopt_harness.untrusted import candidate_code

__all__ = ["BadOutputError", "Call"]


class BadOutputError(Exception):
    """What the solution returned is not what the definition declares."""


class Call:
    """One call: arguments bound, outputs in the arena after ``deliver``."""

    def __init__(
        self,
        function: Callable[..., Any],
        definition: Definition,
        axes: Mapping[str, int],
        *,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        destination_passing: bool,
    ) -> None:
        self._function = function
        self._definition = definition
        self._axes = axes
        self._arguments = (*inputs, *outputs) if destination_passing else tuple(inputs)
        self._outputs = tuple(outputs)
        self._destination_passing = destination_passing
        self._returned: Any = None

    def run(self) -> None:
        """Calls the solution; this is what a timer times."""
        with candidate_code():
            self._returned = self._function(*self._arguments)

    def deliver(self) -> None:
        """Copies returned tensors into the arena, in stream order.

        Raises:
            BadOutputError: the number, type, shape, dtype, device or layout is wrong.
        """
        returned, self._returned = self._returned, None
        if self._destination_passing:
            return
        values = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if len(values) != len(self._outputs):
            raise BadOutputError(
                f"{len(values)} outputs returned, {len(self._outputs)} declared: "
                f"{', '.join(self._definition.outputs)}"
            )
        named = dict(zip(self._definition.outputs, values, strict=True))
        for name, value in named.items():
            _require_plain(name, value)
        kind = self._outputs[0].device.type
        refused = check_outputs(self._definition, self._axes, named, device=kind)
        if refused is not None:
            raise BadOutputError(refused.detail)
        for value, place in zip(values, self._outputs, strict=True):
            place.copy_(value)


def _require_plain(name: str, value: Any) -> None:
    """A subclass or a patched instance can compute when it is looked at; refuse both."""
    import torch

    if type(value) is not torch.Tensor or vars(value):
        raise BadOutputError(f"output {name!r} is {type(value).__name__}, not a plain torch.Tensor")
