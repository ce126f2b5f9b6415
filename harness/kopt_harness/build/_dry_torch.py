"""PyTorch on the CPU that answers host code as if it were on a GPU; nothing is computed there.

Only a builder process enters this, to run a solution's host code up to its kernel launches
on a machine that may have no GPU. Tensors lie in host memory, and say that they are on
``cuda:0``; what is asked for on ``cuda`` is made on the CPU. Not covered: code that reads
results of kernels, CUDA graphs, and calls into other CUDA libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kopt_harness.schema import Definition

__all__ = ["dry_cuda", "multiprocessors", "zero_arguments"]

_MULTIPROCESSORS = {90: 132, 100: 148, 103: 148}
"""SMs of the largest part of each capability: only grids and tile schedules depend on it."""


def multiprocessors(capability: int) -> int:
    """How many SMs host code is told of."""
    return _MULTIPROCESSORS.get(capability, 108)


_ANSWERS: dict[Callable[..., Any], Callable[[Any], Any]] = {
    torch.Tensor.device.__get__: lambda _tensor: torch.device("cuda", 0),
    torch.Tensor.is_cuda.__get__: lambda _tensor: True,
    torch.Tensor.is_cpu.__get__: lambda _tensor: False,
    torch.Tensor.get_device: lambda _tensor: 0,
    torch.Tensor.cuda: lambda tensor: tensor,
    torch.Tensor.pin_memory: lambda tensor: tensor,
}
"""What a tensor says of where it is."""


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]  # torch is not analysed here
    """Sends every request for a CUDA device to the CPU, and hides that from the caller."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types  # every call is treated alike
        if func in _ANSWERS:
            return _ANSWERS[func](args[0])
        named = {name: _cpu(value) for name, value in (kwargs or {}).items()}
        named.pop("pin_memory", None)
        return func(*map(_cpu, args), **named)


def _cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


@contextmanager
def dry_cuda(capability: int) -> Iterator[None]:
    """Make torch speak of a GPU of this compute capability; for the rest of the process.

    Args:
        capability: As 90 or 100.
    """
    properties = SimpleNamespace(
        name=f"dry sm_{capability}",
        major=capability // 10,
        minor=capability % 10,
        multi_processor_count=multiprocessors(capability),
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        total_memory=80 << 30,
    )
    stream = SimpleNamespace(cuda_stream=0, device=torch.device("cuda", 0))
    answers: dict[str, Callable[..., Any]] = {
        "current_device": lambda: 0,
        "current_stream": lambda *_: stream,
        "device": lambda *_: nullcontext(),
        "device_count": lambda: 1,
        "device_of": lambda *_: nullcontext(),
        "get_device_capability": lambda *_: (capability // 10, capability % 10),
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "is_available": lambda: True,
        "set_device": lambda *_: None,
        "stream": lambda *_: nullcontext(),
        "synchronize": lambda *_: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    with _OnCpu():
        yield


def zero_arguments(
    definition: Definition, axes: Mapping[str, int], *, outputs: bool
) -> tuple[Any, ...]:
    """One argument per input, and per output if asked: zero tensors, and 1 for scalars.

    Args:
        definition: Gives shapes and dtypes.
        axes: All axes, bound.
        outputs: Whether the solution takes its outputs as arguments.
    """
    specs = list(definition.inputs.values())
    specs += list(definition.outputs.values()) if outputs else []
    arguments: list[Any] = []
    for spec in specs:
        if spec.shape is None:
            arguments.append(1.0 if spec.dtype.startswith(("float", "bfloat")) else 1)
        else:
            shape = [axes[axis] for axis in spec.shape]
            arguments.append(torch.zeros(shape, dtype=getattr(torch, spec.dtype)))
    return tuple(arguments)
