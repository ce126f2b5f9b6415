// Which shape serves a call, and how the kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernel.cuh"
#include "memory.cuh"
#include "problem.cuh"
#include "tunables.h"

namespace dsa {
namespace {

/// Scratch memory of a launch with this many blocks; it must be all ones, and is so afterwards.
constexpr size_t parts_bytes(int blocks) { return size_t{kTiles} * blocks * 32 * sizeof(uint2); }
constexpr size_t logs_bytes(int blocks) { return size_t{64} * blocks * kHeads * sizeof(float); }
constexpr size_t scratch_bytes(int processors) {
  return parts_bytes(processors) + logs_bytes(processors);
}

template <class S>
cudaError_t launch_shape(const Problem& problem, cudaStream_t stream) {
  const cudaError_t status =
      cudaFuncSetAttribute(attend<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(S::kBytes));
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;  // refuses blocks that cannot all run at once
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(problem.tokens * S::kSplits));
  config.blockDim = dim3(kAllThreads);
  config.dynamicSmemBytes = S::kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = KOPT_COOPERATIVE;
  return cudaLaunchKernelEx(&config, attend<S>, problem);
}

/// As many blocks as the multiprocessors hold at once, one each.
cudaError_t launch_some(const Problem& problem, int processors, cudaStream_t stream) {
  const auto tokens = static_cast<int>(problem.tokens);
  if (tokens * Shape<32>::kSplits <= processors) {
    return launch_shape<Shape<32>>(problem, stream);
  }
  if (tokens * Shape<64>::kSplits <= processors) {
    return launch_shape<Shape<64>>(problem, stream);
  }
  return launch_shape<Shape<128>>(problem, stream);
}

cudaError_t launch(Problem problem, void* scratch, int processors, cudaStream_t stream) {
  problem.parts = static_cast<uint2*>(scratch);
  problem.logs = reinterpret_cast<uint2*>(static_cast<char*>(scratch) + parts_bytes(processors));
  const int64_t most = processors / Shape<128>::kSplits;
  if (most == 0) return cudaErrorInvalidConfiguration;
  for (int64_t left = problem.tokens; left > 0; left -= problem.tokens) {
    problem.tokens = std::min(left, most);
    const cudaError_t status = launch_some(problem, processors, stream);
    if (status != cudaSuccess) return status;
    problem.q_nope += problem.tokens * kHeads * kLatent;
    problem.q_pe += problem.tokens * kHeads * kRope;
    problem.selected += problem.tokens * kPlaces;
    problem.output += problem.tokens * kHeads * kLatent;
    problem.lse += problem.tokens * kHeads;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace dsa
