"""Triton solutions are compiled ahead for GPUs that are not here."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from kopt_harness.build import build_in_worker
from kopt_harness.errors import UnavailableError
from kopt_harness.schema import Definition, Solution

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, s, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * s, mask=i < n)

"""
_RUN = """
def run(x, s, y):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
    copy = torch.empty(x.shape, device="cuda:0").to(x.device)
    with torch.cuda.device(x.device), torch.cuda.device_of(x):
        scale_kernel[(triton.cdiv(x.numel(), 128),)](x + copy, s, y, x.numel(), BLOCK=128)
"""


@pytest.mark.parametrize(("target", "arch"), [("h200", "sm_90a"), ("b200", "sm_100a")])
def test_dry_launch_reports_the_kernel(
    make_solution: Callable[..., Solution], cache: Path, scale: Definition, target: str, arch: str
) -> None:
    """Host code written for a GPU runs up to its launch, and the launch becomes a cubin."""
    solution = make_solution("triton", {"ops/entry.py": _KERNEL + _RUN})
    result = build_in_worker(solution, target, cache, definition=scale, axes={"N": 1000})
    assert result.ok, result.log
    module, kernel = result.artefacts
    assert (module.kind, kernel.kind) == ("module", "cubin")
    assert (kernel.name, kernel.arch) == ("scale_kernel", arch)
    assert kernel.registers
    assert "num_warps 4" in result.log


def test_compile_error_of_a_kernel_does_not_build(
    make_solution: Callable[..., Solution], cache: Path, scale: Definition
) -> None:
    """The log shows the line of the kernel."""
    text = (_KERNEL + _RUN).replace("* s,", "* q,")
    solution = make_solution("triton", {"a.py": text})
    result = build_in_worker(solution, "h200", cache, definition=scale, axes={"N": 8})
    assert not result.ok
    assert "q is not defined" in result.log


def test_host_error_on_zeros_is_only_noted(
    make_solution: Callable[..., Solution], cache: Path, scale: Definition
) -> None:
    """Zeros may not be representative, so the check decides, not the build."""
    text = _KERNEL + "def run(x, s, y):\n    assert x.sum() > 0, 'empty'\n"
    solution = make_solution("triton", {"a.py": text})
    result = build_in_worker(solution, "h200", cache, definition=scale, axes={"N": 8})
    assert result.ok
    assert "AssertionError: empty" in result.log
    assert "no kernel was compiled ahead" in result.log


def test_autotuned_kernel_and_shared_memory_limit(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """precompile() replaces the dry launch; a configuration that cannot fit is left aside."""
    text = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"M": m}, num_warps=8) for m in (256, 64)], key=["n"])
@triton.jit
def square(x, y, n, M: tl.constexpr):
    i = tl.arange(0, M)
    tile = tl.load(x + i[:, None] * M + i[None, :])
    tl.store(y + i[:, None] * M + i[None, :], tl.dot(tile, tile))


def precompile(axes):
    x = torch.empty(axes["N"], device="cuda")
    square[(1,)](x, x, axes["N"])


def run(x, s, y):
    raise NotImplementedError
"""
    solution = make_solution("triton", {"a.py": text})
    result = build_in_worker(solution, "h200", cache, axes={"N": 64 * 64})
    assert result.ok, result.log
    kernels = [artefact for artefact in result.artefacts if artefact.kind == "cubin"]
    assert [kernel.name for kernel in kernels] == ["square"]
    assert kernels[0].smem_bytes
    assert kernels[0].smem_bytes >= 64 * 64 * 4


def test_triton_for_the_cpu_target_is_unavailable(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """The processor cannot run it."""
    with pytest.raises(UnavailableError, match="'cpu'"):
        build_in_worker(make_solution("triton", {"a.py": _KERNEL + _RUN}), "cpu", cache)
