"""Kernels with much shared memory are launched on every device of a process, not on the first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kopt_harness.environ import cxx

ROOT = Path(__file__).parents[2]
CUDA = {
    "gdn": "gdn_prefill_qk4_v8_d128_k_last/solutions/cuda-prefill/solution/cuda",
    "moe": "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048/solutions/cuda-moe"
    "/solution/cuda",
}

RUNTIME = """
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
constexpr int cudaLaunchAttributeProgrammaticStreamSerialization = 6;
constexpr int cudaLaunchAttributeClusterDimension = 4;

struct dim3 {
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

inline int device;      // the current one
inline bool refuses;    // the next question
inline std::map<int, size_t> limits[2];  // of each kernel, by device; 48 KiB where nobody asked

inline int called;       // the kernel that ran last

inline int number_of(void (*kernel)(int)) {
  kernel(0);
  return called;
}

inline cudaError_t cudaGetDevice(int* found) {
  *found = device;
  return cudaSuccess;
}

inline cudaError_t cudaFuncSetAttribute(void (*kernel)(int), int, int bytes) {
  const int number = number_of(kernel);
  std::printf("ask %c%d\\n", 'a' + number, device);
  if (refuses) {
    refuses = false;
    return cudaErrorInvalidValue;
  }
  limits[number][device] = bytes;
  return cudaSuccess;
}

inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(int), int) {
  const int number = number_of(kernel);
  const auto known = limits[number].find(device);
  const size_t limit = known == limits[number].end() ? 48 << 10 : known->second;
  if (config->dynamicSmemBytes > limit) return cudaErrorInvalidValue;
  std::printf("launch %c%d\\n", 'a' + number, device);
  return cudaSuccess;
}
"""
"""What the launches use of the runtime: a limit is one kernel's on one device, as CUDA has it."""

PROGRAM = """
#include <cstdlib>

#include "launch.cuh"

void first(int) { called = 0; }
void second(int) { called = 1; }

template <auto kKernel>
int launch() {
  const SPACE::Grid grid{1, 32, 200 << 10};
#if IS_gdn
  return SPACE::launch_grid<kKernel>(grid, 7, nullptr);
#else
  return SPACE::launch_grid<kKernel>(grid, nullptr, 7);
#endif
}

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {  // each a kernel, a device, and ! where it is refused
    char* rest;
    device = std::strtol(words[i] + 1, &rest, 10);
    refuses = *rest == '!';
    const int status = words[i][0] == 'a' ? launch<first>() : launch<second>();
    if (status != cudaSuccess) std::printf("error %s\\n", words[i]);
  }
}
"""


@pytest.fixture(scope="module", params=sorted(CUDA))
def launched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that launches two kernels on devices, by the solution's own header."""
    compiler = cxx() or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    folder = tmp_path_factory.mktemp("launch")
    (folder / "cuda_runtime.h").write_text(RUNTIME)
    (folder / "program.cpp").write_text(PROGRAM)
    flags = ["-std=c++20", f"-DSPACE={request.param}", f"-DIS_{request.param}=1", f"-I{folder}"]
    sources = ROOT / "kernels" / CUDA[request.param]
    program = folder / "program"
    argv = [compiler, *flags, f"-I{sources}", str(folder / "program.cpp"), "-o", str(program)]
    subprocess.run(argv, check=True, timeout=120)
    return program


def _did(program: Path, words: str) -> list[str]:
    done = subprocess.run([program, *words.split()], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_each_device_is_asked_once_for_each_kernel(launched: Path) -> None:
    """What one device allows says nothing of another, and nobody asks before every launch."""
    assert _did(launched, "a0 a1 b1 a0 a1 b1 b0") == [
        *("ask a0", "launch a0", "ask a1", "launch a1", "ask b1", "launch b1"),
        *("launch a0", "launch a1", "launch b1", "ask b0", "launch b0"),
    ]


def test_a_device_with_a_high_number_is_asked_too(launched: Path) -> None:
    """Where there is no room to remember it, every launch asks."""
    assert _did(launched, "a64 a64") == ["ask a64", "launch a64"] * 2


def test_a_refusal_is_an_error_and_not_remembered(launched: Path) -> None:
    """The next launch asks again."""
    assert _did(launched, "a0! a0") == ["ask a0", "error a0!", "ask a0", "launch a0"]
