// The kernel: S::kSplits blocks for a query token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "attend.cuh"
#include "memory.cuh"
#include "merge.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

/// All blocks of a query token must run at once: they wait for each other.
template <class S>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Problem problem) {
  extern __shared__ __align__(128) char storage[];
  const uint32_t memory = shared_address(storage);
  const int64_t token = blockIdx.x / S::kSplits;
  const int split = static_cast<int>(blockIdx.x % S::kSplits);
  Share<S> share(problem, memory, token, split);
  share.load_queries();
#pragma unroll
  for (int stage = 0; stage < S::kStages; ++stage) share.load_rows(stage);
  share.hold_queries();
#pragma unroll
  for (int stage = 0; stage < S::kStages; ++stage) share.add_stage(stage);
  share.send_parts();
  Merge<S>(problem, memory, token, split).run();
}

}  // namespace dsa
