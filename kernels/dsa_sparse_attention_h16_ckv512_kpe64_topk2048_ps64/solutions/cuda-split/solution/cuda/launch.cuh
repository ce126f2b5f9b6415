// How the kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include "kernel.cuh"
#include "memory.cuh"
#include "problem.cuh"

namespace dsa {
namespace {

cudaError_t launch(const Problem& problem, cudaStream_t stream) {
  cudaError_t status = cudaFuncSetAttribute(
      attend, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Memory::kBytes));
  if (status != cudaSuccess) return status;
  // Clusters of more than 8 blocks have to be asked for.
  status = cudaFuncSetAttribute(attend, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kBlocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(problem.tokens * kBlocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Memory::kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, attend, problem);
}

}  // namespace
}  // namespace dsa
