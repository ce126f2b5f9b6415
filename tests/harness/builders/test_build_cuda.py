"""CUDA C++ is cross-compiled for targets that are not here, and says what it takes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kopt_harness.build import build_in_worker, cuda
from kopt_harness.build._ptxas import parse_ptxas
from kopt_harness.environ import cuda_home
from kopt_harness.errors import UnavailableError
from kopt_harness.schema import Solution

_HOME = cuda_home()
needs_nvcc = pytest.mark.skipif(
    _HOME is None or not (_HOME / "bin" / "nvcc").is_file(), reason="nvcc is not installed"
)

_KERNEL = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

__global__ void scale_kernel(const float* x, float s, float* y, int64_t n) {
  __shared__ float tile[128];
  const int64_t i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = s * tile[threadIdx.x];
}

void scale(tvm::ffi::TensorView x, double s, tvm::ffi::TensorView y) {
  const auto device = x.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  scale_kernel<<<(x.numel() + 127) / 128, 128, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), s, static_cast<float*>(y.data_ptr()), x.numel());
}
"""
_ENTRY = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
void scale(tvm::ffi::TensorView x, double s, tvm::ffi::TensorView y);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, scale);
"""


@needs_nvcc
@pytest.mark.parametrize(("target", "arch"), [("h200", "sm_90a"), ("b200", "sm_100a")])
def test_cross_compiles_and_reports_the_kernel(
    make_solution: Callable[..., Solution], cache: Path, target: str, arch: str
) -> None:
    """A .cu and a .cpp become one object, with registers and shared memory of the kernel."""
    solution = make_solution("cuda", {"entry.cpp": _ENTRY, "kernels/scale.cu": _KERNEL})
    result = build_in_worker(solution, target, cache)
    assert result.ok, result.log
    host, kernel = result.artefacts
    assert host.kind == "shared-object"
    assert kernel.name.startswith("scale_kernel(")
    assert kernel.arch == arch
    assert kernel.registers is not None
    assert 4 <= kernel.registers <= 64
    assert (kernel.smem_bytes, kernel.spill_bytes) == (512, 0)
    assert (Path(result.path) / "solution.so").is_file()


@needs_nvcc
def test_compile_error_names_the_line(make_solution: Callable[..., Solution], cache: Path) -> None:
    """A kernel that does not compile is the candidate's fault."""
    source = _KERNEL.replace("s * tile", "q * tile")
    result = build_in_worker(make_solution("cuda", {"a.cu": source}), "h200", cache)
    assert not result.ok
    assert "a.cu(11)" in result.log
    assert '"q" is undefined' in result.log


@needs_nvcc
def test_missing_entry_symbol_is_found_at_build(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """A kernel file that exports nothing does not build."""
    result = build_in_worker(make_solution("cuda", {"a.cu": _KERNEL}), "h200", cache)
    assert not result.ok
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run" in result.log


def test_cuda_for_the_cpu_target_is_unavailable(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """The processor cannot run it; the hint says what can be built here."""
    with pytest.raises(UnavailableError, match="'cpu'") as caught:
        build_in_worker(make_solution("cuda", {"a.cu": _KERNEL}), "cpu", cache)
    assert "--target" in caught.value.hint


def test_missing_nvcc_is_unavailable_with_a_hint(
    make_solution: Callable[..., Solution], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without the toolkit is told what to install."""
    monkeypatch.setenv("CUDA_HOME", "/no/such/toolkit")
    monkeypatch.setenv("PATH", "/no/such/folder")
    cuda._find_nvcc.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="nvcc not found") as caught:
            build_in_worker(make_solution("cuda", {"a.cu": _KERNEL}), "h200", cache)
    finally:
        cuda._find_nvcc.cache_clear()
    assert "CUDA_HOME" in caught.value.hint


def test_ptxas_lines_become_one_artefact_per_kernel() -> None:
    """Spills of a function that was not inlined count for the kernel that it belongs to."""
    log = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5firstPf' for 'sm_90a'
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for _Z5firstPf
    96 bytes stack frame, 40 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 96 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
    first, second = parse_ptxas(log)
    assert (first.registers, first.smem_bytes, first.spill_bytes) == (168, 2048, 108)
    assert (second.name, second.registers, second.smem_bytes) == ("second", 8, 0)
    assert second.spill_bytes == 0
