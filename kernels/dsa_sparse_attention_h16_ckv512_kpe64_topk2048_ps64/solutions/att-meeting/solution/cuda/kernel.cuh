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

/// What the warps that compute do. A short share is gone through twice: first with whatever is in
/// shared memory, for nothing but to have the instructions in the caches when the rows are there.
template <class S>
__device__ __forceinline__ void compute(const Problem& problem, uint32_t memory, int token,
                                        int split) {
  const uint32_t barriers = memory + S::kBarriers;
  Share<S> share(problem, memory, token, split, thread_number());
  if (S::kRows <= KOPT_MARK_ROWS) share.mark_absent();
#pragma unroll 1
  for (int pass = S::kRows <= KOPT_REHEARSE_ROWS ? 0 : 1; pass < 2; ++pass) {
    const bool real = pass == 1;
    if (real) barrier_wait(barriers + S::kStages * 8, 0);
    share.begin();
#pragma unroll 1
    for (int stage = real ? 0 : S::kStages - 1; stage < S::kStages; ++stage) {
      if (real) barrier_wait(barriers + stage * 8, 0);
      share.add_stage(stage);
    }
  }
  share.send();
  Merge<S>(problem, memory, token, split, thread_number()).run();
}

/// All blocks of a query token must run at once: they wait for each other.
template <class S>
__global__ void __launch_bounds__(kAllThreads, 1) attend(const __grid_constant__ Problem problem) {
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
    for (int i = 0; i < S::kStages; ++i) barrier_init(memory + S::kBarriers + i * 8, kFetchWarps);
    barrier_init(memory + S::kBarriers + S::kStages * 8, kThreads);
    barrier_init_fence();
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
