"""Calls a solution by either convention and brings its outputs into the arena.

Only the candidate process imports this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopt_harness.check import check_outputs
from kopt_harness.schema import Definition
from kopt_harness.untrusted import candidate_code

from . import fingerprint

__all__ = ["BadOutputError", "Call", "LazyOutputError"]

_profile_hook, _trace_hook = sys.getprofile, sys.gettrace


class BadOutputError(Exception):
    """What the solution returned is not what the definition declares."""


class LazyOutputError(BadOutputError):
    """What it returned looks like a tensor and can compute when it is looked at."""


class Call:
    """One call: ``run``, ``seal``, wait for the device, ``deliver``, ``changed``."""

    def __init__(
        self,
        function: Callable[..., Any],
        definition: Definition,
        axes: Mapping[str, int],
        *,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        destination_passing: bool,
        device: Any,
    ) -> None:
        self._function = function
        self._definition = definition
        self._axes = axes
        self._arguments = (*inputs, *outputs) if destination_passing else tuple(inputs)
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._destination_passing = destination_passing
        self._device = device
        self._returned: Any = None
        self.is_hooked = False
        """Whether the solution left a trace or profile function behind when it returned."""
        self._accepted: tuple[Any, ...] | None = None
        self._seal: fingerprint.Seal | None = None

    def run(self) -> None:
        """Calls the solution; this is what a timer times."""
        with candidate_code():
            self._returned = self._function(*self._arguments)
        # At once: a hook could act on the next line and take itself away.
        self.is_hooked = _profile_hook() is not None or _trace_hook() is not None

    def seal(self) -> None:
        """Takes a fingerprint of the outputs in stream order; a timer calls it after ``run``.

        Raises:
            BadOutputError: what was returned is not of the declared number, type, shape, dtype,
                device and layout, or lies in the memory of another tensor.
        """
        outputs = self._outputs if self._destination_passing else self._plain_outputs()
        named = dict(zip(self._definition.outputs, outputs, strict=True))
        self._seal = fingerprint.seal(self._device, named)

    def changed(self) -> list[str]:
        """Outputs that were written to after ``seal``; the device must have been waited for."""
        taken = self._seal
        assert taken is not None, "sealed before"
        then = fingerprint.values(self._device, taken)
        again = fingerprint.reseal(self._device, taken)
        self._device.synchronize()
        now = fingerprint.values(self._device, again)
        return [name for name in then if now[name] != then[name]]

    def deliver(self) -> None:
        """Copies returned tensors into the arena, in stream order.

        Raises:
            BadOutputError: nothing has been sealed since the last time.
        """
        accepted, self._accepted = self._accepted, None
        # Whatever else was returned ends here: a destructor that writes outputs writes late.
        self._returned = None
        if self._destination_passing:
            return
        if accepted is None:
            raise BadOutputError("nothing was returned since the last delivery")
        for value, place in zip(accepted, self._outputs, strict=True):
            place.copy_(value)

    def _plain_outputs(self) -> tuple[Any, ...]:
        """What was returned, if it is of the declared form and memory of its own."""
        returned, self._returned = self._returned, None
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
        _require_apart(named, dict(zip(self._definition.inputs, self._inputs, strict=False)))
        self._accepted = values
        return values


def _require_plain(name: str, value: Any) -> None:
    """A subclass or a patched instance can compute when it is looked at; refuse both."""
    import torch

    if type(value) is torch.Tensor and not vars(value):
        return
    what = f"output {name!r} is {type(value).__name__}"
    if isinstance(value, torch.Tensor) or hasattr(value, "__torch_function__"):
        raise LazyOutputError(f"{what} with code of its own, not a plain torch.Tensor")
    raise BadOutputError(f"{what}, not a plain torch.Tensor")


def _require_apart(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """No output lies in the memory of an input or of another output."""
    import torch

    others = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for name, value in outputs.items():
        start, end = value.data_ptr(), value.data_ptr() + value.nbytes
        for other, tensor in others.items():
            if start < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < end:
                raise BadOutputError(f"output {name!r} lies in the memory of {other!r}")
        others[name] = value
