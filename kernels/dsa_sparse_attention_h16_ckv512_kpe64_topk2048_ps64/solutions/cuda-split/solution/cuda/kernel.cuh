// The kernel: S::kSplits blocks for a query token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "attend.cuh"
#include "fetch.cuh"
#include "memory.cuh"
#include "merge.cuh"
#include "problem.cuh"
#include "ptx.cuh"
#include "tunables.h"

namespace dsa {

/// What the warps that compute do. With few rows they do it twice: first with whatever is in shared
/// memory, for nothing but to have the instructions in the caches when the rows arrive.
template <class S>
__device__ __forceinline__ void compute(const Problem& problem, uint32_t memory, int token,
                                        int split) {
  Share<S> share(problem, memory, token, split);
  Merge<S> merge(problem, memory, token, split);
#pragma unroll 1
  for (int round = S::kRows <= KOPT_REHEARSE_ROWS ? 0 : 1; round < 2; ++round) {
    const bool real = round == 1;
    const uint32_t barriers = memory + S::kBarriers;
    if (real) barrier_wait(barriers + S::kStages * 8, 0);
    share.begin();
    const int stages = real ? S::kStages : 1;
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      if (real) barrier_wait(barriers + stage * 8, 0);
      share.add_stage(stage);
    }
    share.send(real);
    merge.run(real);
  }
}

/// All blocks of a query token must run at once: they wait for each other.
template <class S>
__global__ void __launch_bounds__(kAllThreads, 1)
    attend(const __grid_constant__ Problem problem) {
  extern __shared__ __align__(128) char storage[];
  const uint32_t memory = shared_address(storage);
  const int token = static_cast<int>(blockIdx.x / S::kSplits);
  const int split = static_cast<int>(blockIdx.x % S::kSplits);
  const int warp = static_cast<int>(threadIdx.x / 32) - kWarps;  // of those that fetch
  const int lane = static_cast<int>(threadIdx.x % 32);
  int id = -1;
  if (warp >= 0 && lane < S::kStages * 8) {
    const int place = split * S::kRows + lane / 8 * kStageRows + warp * 8 + lane % 8;
    id = __ldg(problem.selected + token * kPlaces + place);
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(memory + S::kBarriers + i * 8, kFetchWarps * 32);
    }
    barrier_init(memory + S::kBarriers + S::kStages * 8, kThreads + kFetchWarps);
  }
  __syncthreads();
  if (warp >= 0) {
    fetch_rows<S>(problem, memory, warp, lane, id);
  } else {
    fetch_queries<S>(problem, memory, token);
    compute<S>(problem, memory, token, split);
  }
}

}  // namespace dsa
