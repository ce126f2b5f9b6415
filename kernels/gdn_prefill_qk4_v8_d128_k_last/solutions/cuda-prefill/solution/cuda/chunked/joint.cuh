// Both kernels in one launch, for few sequences: most multiprocessors prepare chunks, in the order
// in which the others need them.
//
// A record's flag in scratch memory is 0 but between the moment that the record is there and the
// moment that the last block has seen so. Blocks that prepare come first in the grid, wait for
// nobody, and so free the multiprocessors if not all of the grid fits.
#pragma once

#include "tiles.cuh"
#include "wide.cuh"

namespace gdn::chunked {

constexpr int kJointSequences = 8;

/// The chunks of all sequences: first chunks, second chunks, and so on.
struct ChunkOrder {
  int begin[kJointSequences];
  int tokens[kJointSequences];
  int chunk = 0;
  int before = 0;  // in this order, chunks of a lower number

  __device__ explicit ChunkOrder(const Params& p) {
#pragma unroll
    for (int n = 0; n < kJointSequences; ++n) {
      const bool there = n < p.sequences;
      begin[n] = there ? static_cast<int>(p.cu_seqlens[n]) : 0;
      tokens[n] = there ? static_cast<int>(p.cu_seqlens[n + 1]) - begin[n] : 0;
    }
  }

  /// The sequence that has chunk number `index` of the order; negative after the last one. `index`
  /// does not decrease from call to call, and `chunk` is which of the sequence it is.
  __device__ int find(int index) {
    for (;;) {
      int width = 0;
      int found = -1;
#pragma unroll
      for (int n = 0; n < kJointSequences; ++n) {
        if (tokens[n] <= chunk * kChunk) continue;
        if (before + width == index) found = n;
        ++width;
      }
      if (found >= 0 || width == 0) return found;
      before += width;
      ++chunk;
    }
  }
};

/// Four warps that prepare every `stride`-th chunk and head.
__device__ __forceinline__ void run_team(const WideParams& p, char* bench, int first,
                                         int stride, int thread, int meeting) {
  if (thread == 0) {
    barrier_init(shared_address(bench) + Workbench::kBarrier, 1);
    barriers_visible();
  }
  warps_meet(meeting, kPrepareThreads);
  ChunkOrder order(p);
  uint32_t parity = 0;
  for (int index = first;; index += stride) {
    const int sequence = order.find(index / kHeads);
    if (sequence < 0) break;
    int begin = 0;
    int tokens = 0;
#pragma unroll
    for (int n = 0; n < kJointSequences; ++n) {
      if (n == sequence) {
        begin = order.begin[n];
        tokens = order.tokens[n];
      }
    }
    const int rest = tokens - order.chunk * kChunk;
    const Place place{begin + order.chunk * kChunk, rest < kChunk ? rest : kChunk};
    const int64_t slot = slot_of(begin, sequence) + order.chunk;
    const int head = index % kHeads;
    prepare_tiles_of(p, place, slot, head, bench, parity, thread, meeting);
    parity ^= 1;
    if (thread == 0) {
      stores_wait();
      flag_raise(p.flags + slot * kHeads + head, 2);
    }
    warps_meet(meeting, kPrepareThreads);
  }
}

template <class W>
__global__ void __launch_bounds__(W::kThreads, 1)
    joint(const __grid_constant__ WideParams p) {
  static_assert(W::kJoint && W::kThreads == W::kTeams * kPrepareThreads && W::kSplits == 2);
  static_assert(W::kTeams * Workbench::kBytes + 1024 <= W::kSharedBytes);
#if GDN_WARPGROUPS
  extern __shared__ __align__(128) char shared[];
  const int preparing = static_cast<int>(gridDim.x) - p.sequences * kHeads * W::kSplits;
  if (static_cast<int>(blockIdx.x) < preparing) {
    const int team = threadIdx.x / kPrepareThreads;
    char* bench = shared + (-shared_address(shared) & 1023u) + team * Workbench::kBytes;
    run_team(p, bench, blockIdx.x + team * preparing, W::kTeams * preparing,
             threadIdx.x % kPrepareThreads, 1 + team);
  } else {
    run_wide<W>(p, shared, preparing);
  }
#endif
}

}  // namespace gdn::chunked
