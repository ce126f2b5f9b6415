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

/// Of a row; -1 behind the last one.
__device__ __forceinline__ int length_of(const Problem& p, int row) {
  return row < p.rows ? max(0, min(__ldg(p.lengths + row), p.width * kPage)) : -1;
}

struct Row {
  int index = -1;
  int length = 0;
};

/// The lengths as a warp knows them; all of its lanes ask.
class Rows {
 public:
  __device__ explicit Rows(const Problem& p) : p_(p), first_(length_of(p, threadIdx.x % 32)) {}

  __device__ int count_long() const {
    const int lane = threadIdx.x % 32;
    int count = __popc(__ballot_sync(kAllLanes, is_long(first_)));
#pragma unroll 1
    for (int start = 32; start < p_.rows; start += 32) {
      count += __popc(__ballot_sync(kAllLanes, is_long(length_of(p_, start + lane))));
    }
    return count;
  }

  /// The number-th long (or short) row; its index is -1 where there are not so many.
  __device__ Row find(bool wanted_long, int number) const {
    const int lane = threadIdx.x % 32;
    int length = first_;
#pragma unroll 1
    for (int start = 0;;) {
      const bool fits = length >= 0 && is_long(length) == wanted_long;
      const unsigned rows = __ballot_sync(kAllLanes, fits);
      const bool hit = fits && __popc(rows & ((1u << lane) - 1)) == number;
      const unsigned found = __ballot_sync(kAllLanes, hit);
      if (found != 0) {
        const int from = __ffs(found) - 1;
        return {start + from, __shfl_sync(kAllLanes, length, from)};
      }
      number -= __popc(rows);
      start += 32;
      if (start >= p_.rows) return {};
      length = length_of(p_, start + lane);
    }
  }

 private:
  const Problem& p_;
  int first_;  // of the row that has the lane's number
};

/// a / b rounded down, for a below 2^20. (A division of integers is a long chain.)
__device__ __forceinline__ int ratio(int a, int b) {
  return static_cast<int>(__fdividef(static_cast<float>(a) + 0.5f, static_cast<float>(b)));
}

/// A block's place among all.
struct Post {
  int cluster, clusters;
  int rank, blocks;  // within the cluster; blocks is a power of two
};

/// A block's part in long rows: those with the numbers first, first + step, ... below end.
struct Part {
  int first, step, end;
  int blocks;  // that share such a row
  int member;  // of them
};

__device__ __forceinline__ Part part_of_block(int long_rows, const Post& post) {
  const int others = long_rows - post.cluster - 1;
  if (others < 0) return {0, 1, 0, 1, 0};
  const int own = ratio(others, post.clusters) + 1;
  if (own > post.blocks) {
    return {post.cluster + post.clusters * post.rank, post.clusters * post.blocks, long_rows, 1, 0};
  }
  const int group = post.rank * own >> (__ffs(post.blocks) - 1);
  const int begin = ratio(group * post.blocks + own - 1, own);
  const int end = ratio((group + 1) * post.blocks + own - 1, own);
  const int row = post.cluster + post.clusters * group;
  return {row, long_rows, row + 1, end - begin, post.rank - begin};
}

}  // namespace topk
