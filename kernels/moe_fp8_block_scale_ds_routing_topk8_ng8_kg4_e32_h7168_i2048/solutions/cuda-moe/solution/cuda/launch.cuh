// How kernels are launched.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

namespace moe {
namespace {  // a static of a template is one for all libraries of a process otherwise

constexpr int kMostDevices = 64;

/// Allows a kernel so much dynamic shared memory on the current device; asks the driver once.
template <auto kKernel>
cudaError_t allow_shared_memory(size_t bytes) {
  static std::atomic<bool> allowed[kMostDevices];
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  if (device < kMostDevices && allowed[device]) return cudaSuccess;
  const cudaError_t status = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (device < kMostDevices && status == cudaSuccess) allowed[device] = true;
  return status;
}

struct Grid {
  int64_t blocks;
  int threads;
  size_t shared_bytes;
  /// Whether it may start before the kernel before it has ended, for which it waits by itself.
  bool early = false;
  unsigned cluster = 1;
};

template <auto kKernel, class... Arguments>
cudaError_t launch_grid(const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  if (grid.shared_bytes > 0) {
    const cudaError_t allowed = allow_shared_memory<kKernel>(grid.shared_bytes);
    if (allowed != cudaSuccess) return allowed;
  }
  cudaLaunchAttribute attributes[2];
  unsigned used = 0;
  if (grid.early) {
    attributes[used].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[used++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[used].id = cudaLaunchAttributeClusterDimension;
    attributes[used++].val.clusterDim = {grid.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = used;
  return cudaLaunchKernelEx(&config, kKernel, arguments...);
}

}  // namespace
}  // namespace moe
