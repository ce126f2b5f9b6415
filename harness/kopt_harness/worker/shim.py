"""Calls a solution by either convention and brings its outputs into the arena.

Only the candidate process imports this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kopt_harness.check import check_outputs
from kopt_harness.schema import Definition
from kopt_harness.untrusted import candidate_code

from . import fingerprint

__all__ = ["BadOutputError", "Call", "LazyOutputError"]

# Bound here, before candidate code can replace them; the class below is not Python's.
_BASE: Any = torch._C.TensorBase  # noqa: SLF001
_HOOKS: dict[str, Callable[[], object]] = {
    "a profile function": sys.getprofile,
    "a trace function": sys.gettrace,
    "a mode of PyTorch's functions": torch._C._len_torch_function_stack,  # noqa: SLF001
    "a mode of PyTorch's operators": torch._C._len_torch_dispatch_stack,  # noqa: SLF001
}
_hooks = tuple(_HOOKS.items())


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
        self.hooks: list[str] = []
        """What the solution has left behind that acts on code which comes later."""
        self._accepted: tuple[Any, ...] | None = None
        self._seal: fingerprint.Seal | None = None

    def run(self) -> None:
        """Calls the solution; this is what a timer times."""
        with candidate_code():
            self._returned = self._function(*self._arguments)
        # At once: a hook could act on the next line and take itself away.
        self.hooks = [name for name, read in _hooks if read()]

    def seal(self) -> None:
        """Takes a fingerprint of the outputs in stream order; a timer calls it after ``run``.

        Raises:
            BadOutputError: what was returned is not of the declared number, type, shape, dtype,
                device and layout, or lies in the memory of another tensor.
        """
        outputs = self._outputs if self._destination_passing else self._returned_tensors()
        # Before anything else is asked of them that could have been replaced.
        named = dict(zip(self._definition.outputs, outputs, strict=True))
        self._seal = fingerprint.seal(self._device, named)
        if not self._destination_passing:
            self._require_form(named)
            self._accepted = outputs

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
            _BASE.copy_(place, value)

    def _returned_tensors(self) -> tuple[Any, ...]:
        """What was returned, as many plain tensors as are declared."""
        returned, self._returned = self._returned, None
        kind = next((each for each in (tuple, list) if isinstance(returned, each)), None)
        if kind is not None and type(returned).__iter__ is not kind.__iter__:
            raise LazyOutputError(f"a {type(returned).__name__} was returned that has its own code")
        values = (returned,) if kind is None else tuple(kind.__iter__(returned))
        if len(values) != len(self._outputs):
            raise BadOutputError(
                f"{len(values)} outputs returned, {len(self._outputs)} declared: "
                f"{', '.join(self._definition.outputs)}"
            )
        for name, value in zip(self._definition.outputs, values, strict=True):
            _require_plain(name, value)
        return values

    def _require_form(self, named: Mapping[str, Any]) -> None:
        """Shape, dtype, device, layout, and memory of their own."""
        kind = self._outputs[0].device.type
        refused = check_outputs(self._definition, self._axes, named, device=kind)
        if refused is not None:
            raise BadOutputError(refused.detail)
        _require_apart(named, dict(zip(self._definition.inputs, self._inputs, strict=False)))


def _require_plain(name: str, value: Any) -> None:
    """A subclass or a patched instance can compute when it is looked at; refuse both."""
    if type(value) is torch.Tensor and not vars(value):
        return
    what = f"output {name!r} is {type(value).__name__}"
    if isinstance(value, torch.Tensor) or hasattr(value, "__torch_function__"):
        raise LazyOutputError(f"{what} with code of its own, not a plain torch.Tensor")
    raise BadOutputError(f"{what}, not a plain torch.Tensor")


def _require_apart(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """No output lies in the memory of an input or of another output."""
    others = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for name, value in outputs.items():
        start, end = value.data_ptr(), value.data_ptr() + value.nbytes
        for other, tensor in others.items():
            if start < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < end:
                raise BadOutputError(f"output {name!r} lies in the memory of {other!r}")
        others[name] = value
