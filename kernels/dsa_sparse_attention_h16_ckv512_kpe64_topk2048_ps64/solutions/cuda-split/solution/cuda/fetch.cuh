// How queries and rows get into shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

__device__ __forceinline__ const char* bytes_of(const __nv_bfloat16* data) {
  return reinterpret_cast<const char*>(data);
}

/// By the warps that compute.
template <class S>
__device__ __forceinline__ void fetch_queries(const Problem& problem, uint32_t memory, int token) {
  constexpr int kPieces = kLatentBytes / 16;
  constexpr int kHeadsAtOnce = kThreads / kPieces;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* latent = bytes_of(problem.q_nope) + token * kHeads * kLatentBytes + thread * 16;
  uint32_t target =
      memory + S::kQueries + thread / kPieces * kPitch + thread % kPieces * 16;
#pragma unroll
  for (int head = 0; head < kHeads; head += kHeadsAtOnce) {
    copy_async(target + head * kPitch, latent + head * kLatentBytes, true);
  }
  if (thread < kHeads * kRopeBytes / 16) {
    const auto* rope = bytes_of(problem.q_pe) + token * kHeads * kRopeBytes + thread * 16;
    target = memory + S::kQueries + thread / 8 * kPitch + kLatentBytes + thread % 8 * 16;
    copy_async(target, rope, true);
  }
  barrier_arrive_after_copies(memory + S::kBarriers + S::kStages * 8);
}

/// By the warps that fetch: 8 rows of each stage a warp. Lane i comes with the token of row i % 8 of
/// stage i / 8. Rows that nothing is selected for become zeros.
template <class S>
__device__ __forceinline__ void fetch_rows(const Problem& problem, uint32_t memory, int warp,
                                           int lane, int id) {
  const unsigned valid = __ballot_sync(kAllLanes, id >= 0);
  if (lane < S::kStages) {
    store_shared_byte(memory + S::kValid + lane * 4 + warp, valid >> lane * 8);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(memory + S::kBarriers + S::kStages * 8);
  uint32_t target = memory + S::kKeys + warp * 8 * kPitch;
#pragma unroll 1
  for (int stage = 0; stage < S::kStages; ++stage) {
#pragma unroll 4
    for (int row = 0; row < 8; ++row) {
      const int own = __shfl_sync(kAllLanes, id, stage * 8 + row);
      const auto* source = bytes_of(problem.ckv) + int64_t{max(own, 0)} * kLatentBytes + lane * 16;
      copy_async(target + row * kPitch + lane * 16, source, own >= 0);
      copy_async(target + row * kPitch + lane * 16 + 512, source + 512, own >= 0);
    }
#pragma unroll
    for (int row = 0; row < 8; row += 4) {
      const int own = __shfl_sync(kAllLanes, id, stage * 8 + row + lane / 8);
      const auto* source = bytes_of(problem.kpe) + int64_t{max(own, 0)} * kRopeBytes;
      copy_async(target + (row + lane / 8) * kPitch + kLatentBytes + lane % 8 * 16,
                 source + lane % 8 * 16, own >= 0);
    }
    barrier_arrive_after_copies(memory + S::kBarriers + stage * 8);
    target += kStageRows * kPitch;
  }
}

}  // namespace dsa
