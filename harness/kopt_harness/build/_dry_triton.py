"""Triton without a GPU: every launch becomes a compilation for a given architecture.

Only a builder process enters this. Written against Triton 3.5 to 3.9; what it relies on is
checked when it is installed, and a Triton that differs is an ``UnavailableError``.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from kopt_harness.errors import UnavailableError

from ._dry_torch import multiprocessors

__all__ = ["Launches", "install"]

_MAX_SHARED_BYTES = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
"""Shared memory that one block may ask for, CUDA programming guide, technical specifications."""

_MAX_CONFIGS = 8
"""Configurations of one autotuned kernel that are compiled; the others are left out."""


class Launches:
    """Kernels that were compiled, in the order of their first launch."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.kernels: dict[str, Any] = {}
        """By hash: ``triton.compiler.CompiledKernel``."""
        self.configs_left_out = 0
        self._configs: Counter[int] = Counter()

    def add(self, kernel: Any) -> None:
        """Note a compiled kernel.

        Raises:
            OutOfResources: It takes more shared memory than the architecture has; a launch
                on a GPU would raise the same.
        """
        limit = _MAX_SHARED_BYTES.get(self.capability)
        if limit is not None and kernel.metadata.shared > limit:
            raise OutOfResources(kernel.metadata.shared, limit, "shared memory")
        self.kernels.setdefault(kernel.hash, kernel)

    def benchmark(self, tuner: Any) -> Callable[..., Sequence[float]]:
        """What an autotuner times with: compiles, and makes the first that compiles the best."""
        self._configs[id(tuner)] += 1
        rank = self._configs[id(tuner)]

        def compile_only(call: Callable[[], None], **_: Any) -> Sequence[float]:
            if rank > _MAX_CONFIGS:
                self.configs_left_out += 1
                return [math.inf] * 3
            call()
            return [float(rank)] * 3

        return compile_only


class _DryDriver:
    """The part of a Triton driver that is asked before anything runs."""

    def __init__(self, capability: int) -> None:
        self._capability = capability
        self._target = GPUTarget("cuda", capability, 32)
        properties = {
            "max_shared_mem": _MAX_SHARED_BYTES.get(capability, 49152),
            "max_num_regs": 65536,
            "multiprocessor_count": multiprocessors(capability),
            "warpSize": 32,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda _device: properties)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, _device: int | None = None) -> tuple[int, int]:
        return divmod(self._capability, 10)


def install(capability: int) -> Launches:
    """Replace the driver and the launch, for the rest of the process.

    Args:
        capability: As 90 or 100.

    Raises:
        UnavailableError: If this Triton is not built as expected.
    """
    _require_known_triton()
    launches = Launches(capability)
    driver.set_active(_DryDriver(capability))
    compile_or_launch = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        del warmup  # launches and warm-ups are the same here
        kernel = compile_or_launch(self, *args, grid=grid, warmup=True, **kwargs)
        launches.add(kernel)
        return kernel

    JITFunction.run = compile_only
    Autotuner.do_bench = property(launches.benchmark)
    return launches


def _require_known_triton() -> None:
    parameters = inspect.signature(JITFunction.run).parameters
    found = {
        "JITFunction.run(grid, warmup)": {"grid", "warmup"} <= parameters.keys(),
        "Autotuner.do_bench": "do_bench" in vars(Autotuner),
        "driver.set_active": hasattr(driver, "set_active"),
    }
    lacking = [name for name, there in found.items() if not there]
    if lacking:
        raise UnavailableError(
            f"Triton {triton.__version__!r} cannot be cross-compiled with: it has no "
            f"{', '.join(lacking)}",
            hint="install triton >= 3.5, <= 3.9",
        )
