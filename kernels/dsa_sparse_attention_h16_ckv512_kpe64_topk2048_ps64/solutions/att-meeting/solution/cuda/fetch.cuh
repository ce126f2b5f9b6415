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
  const int row = lane / 8 * kStageRows + warp * 8 + lane % 8;
  const uint32_t target = memory + S::kKeys + row * kPitch;
  const auto* latent = bytes_of(problem.ckv) + int64_t{id} * kLatentBytes;
  const auto* rope = bytes_of(problem.kpe) + int64_t{id} * kRopeBytes;
#pragma unroll 1
  for (int stage = 0; stage < S::kStages; ++stage) {
    const uint32_t barrier = memory + S::kBarriers + stage * 8;
    if (id >= 0 && lane / 8 == stage) {
      copy_bulk(target, latent, kLatentBytes, barrier);
      copy_bulk(target + kLatentBytes, rope, kRopeBytes, barrier);
    }
  }
  unsigned holes = ~valid & (~0u >> (32 - S::kStages * 8));
#pragma unroll 1
  while (holes != 0) {
    const uint32_t hole = __shfl_sync(kAllLanes, target, __clz(__brev(holes)));
    holes &= holes - 1;
#pragma unroll
    for (int byte = 0; byte < kLatentBytes + kRopeBytes; byte += 512) {
      if (byte + lane * 16 < kLatentBytes + kRopeBytes) clear_shared(hole + byte + lane * 16);
    }
  }
  __syncwarp();
  if (lane < S::kStages) {
    const unsigned own = valid >> lane * 8 & 0xffu;
    store_shared_byte(memory + S::kValid + lane * 4 + warp, own);
    barrier_expect(memory + S::kBarriers + lane * 8, __popc(own) * (kLatentBytes + kRopeBytes));
  }
}

}  // namespace dsa
