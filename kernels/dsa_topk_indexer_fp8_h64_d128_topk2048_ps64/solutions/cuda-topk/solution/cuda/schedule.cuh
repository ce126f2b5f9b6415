// Who does what, found by each warp from the lengths on the device.
//
// Long rows are dealt out to clusters in turn; the blocks of a cluster are divided among its rows.
// Where a cluster has more rows than blocks, each block has rows of its own, one after the other.
// Short rows go to the last blocks of the clusters: the first ones of a group select.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace topk {

__device__ __forceinline__ bool is_long(int length) { return length > kSelected; }

__device__ __forceinline__ int length_of(const Problem& p, int row) {
  return row < p.rows ? max(0, min(__ldg(p.lengths + row), p.width * kPage)) : -1;
}

/// How many rows are long. The whole warp asks.
__device__ __forceinline__ int count_long(const Problem& p) {
  const int lane = threadIdx.x % 32;
  int count = 0;
#pragma unroll 1
  for (int start = 0; start < p.rows; start += 32) {
    count += __popc(__ballot_sync(kAllLanes, is_long(length_of(p, start + lane))));
  }
  return count;
}

/// The index-th long (or short) row, or -1. The whole warp asks.
__device__ __forceinline__ int find_row(const Problem& p, bool wanted_long, int index) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int start = 0; start < p.rows; start += 32) {
    const int length = length_of(p, start + lane);
    const bool fits = length >= 0 && is_long(length) == wanted_long;
    const unsigned rows = __ballot_sync(kAllLanes, fits);
    const bool hit = fits && __popc(rows & ((1u << lane) - 1)) == index;
    const unsigned found = __ballot_sync(kAllLanes, hit);
    if (found != 0) return start + __ffs(found) - 1;
    index -= __popc(rows);
  }
  return -1;
}

/// A block's part in long rows: those with the numbers first, first + step, ... below end.
struct Part {
  int first, step, end;
  int blocks;  // that share such a row
  int member;  // of them
};

__device__ __forceinline__ Part part_of_block(int long_rows, int cluster, int clusters, int rank) {
  const int own = long_rows > cluster ? (long_rows - cluster - 1) / clusters + 1 : 0;
  if (own == 0) return {0, 1, 0, 1, 0};
  if (own > kCluster) {
    return {cluster + clusters * rank, clusters * kCluster, long_rows, 1, 0};
  }
  const int group = rank * own / kCluster;
  const int begin = (group * kCluster + own - 1) / own;
  const int end = ((group + 1) * kCluster + own - 1) / own;
  const int row = cluster + clusters * group;
  return {row, long_rows, row + 1, end - begin, rank - begin};
}

}  // namespace topk
