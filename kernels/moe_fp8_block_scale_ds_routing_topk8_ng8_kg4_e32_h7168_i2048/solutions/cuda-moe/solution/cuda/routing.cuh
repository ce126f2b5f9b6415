// Which local experts a token has and how much each counts; rows of each expert.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace moe {

/// Up to so many tokens are routed by one cluster; more need a second kernel to pack them.
constexpr int kRouteFew = 128;
constexpr int kRouteBlocks = 8;
constexpr int kRouteFewThreads = 512;
constexpr int kRouteThreads = 256;
constexpr int kPackThreads = 1024;

/// A float as an unsigned integer of the same order; never 0 for a number.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// Routes one token with one warp; lane l sees experts 8 l to 8 l + 7. Returns the local experts.
__device__ inline unsigned route_token(const Problem& problem, const Scratch& scratch, int token) {
  const int lane = threadIdx.x % 32;
  const float4* logits =
      reinterpret_cast<const float4*>(problem.logits + static_cast<int64_t>(token) * kExperts);
  const float4 low = __ldg(logits + 2 * lane);
  const float4 high = __ldg(logits + 2 * lane + 1);
  const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const uint4 bias = __ldg(reinterpret_cast<const uint4*>(problem.bias) + lane);
  const unsigned packed[4] = {bias.x, bias.y, bias.z, bias.w};
  float score[8];
  unsigned key[8];
  float best = -INFINITY;
  float second = -INFINITY;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    score[i] = 1.0f / (1.0f + expf(-x[i]));
    const float b = __uint_as_float(i % 2 ? packed[i / 2] & 0xffff0000u : packed[i / 2] << 16);
    const float biased = score[i] + b;
    key[i] = ordered(biased);
    second = fmaxf(second, fminf(best, biased));
    best = fmaxf(best, biased);
  }
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {  // four lanes are a group
    const float other = __shfl_xor_sync(kAllLanes, best, step);
    const float next = __shfl_xor_sync(kAllLanes, second, step);
    second = fmaxf(fminf(best, other), fmaxf(second, next));
    best = fmaxf(best, other);
  }
  const float group = best + second;
  int rank = 0;
#pragma unroll
  for (int g = 0; g < 8; ++g) {
    const float other = __shfl_sync(kAllLanes, group, 4 * g);
    rank += other > group || (other == group && g < lane / 4);
  }
  if (rank >= 4) {
#pragma unroll
    for (int i = 0; i < 8; ++i) key[i] = 0;
  }
  int mine = 0;  // lane k keeps the k-th selected expert
  float mine_score = 0.0f;
  float total = 0.0f;
#pragma unroll
  for (int k = 0; k < kTop; ++k) {
    unsigned top = 0;
    int where = 0;
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (key[i] > top) {
        top = key[i];
        where = i;
        s = score[i];
      }
    }
    const unsigned most = __reduce_max_sync(kAllLanes, top);
    const int winner = __ffs(__ballot_sync(kAllLanes, top == most)) - 1;
    const int expert = __shfl_sync(kAllLanes, lane * 8 + where, winner);
    s = __shfl_sync(kAllLanes, s, winner);
    total += s;
    if (lane == k) {
      mine = expert;
      mine_score = s;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (lane == winner && i == where) key[i] = 0;
    }
  }
  const int local = mine - problem.offset;
  const bool here = lane < kTop && local >= 0 && local < kLocal;
  const unsigned mask = __reduce_or_sync(kAllLanes, here ? 1u << local : 0u);
  if (here) {
    const int index = __popc(mask & ((1u << local) - 1));
    scratch.weight[static_cast<int64_t>(token) * kTop + index] =
        mine_score / (total + 1e-20f) * problem.factor;
  }
  return mask;
}

__device__ inline void place_row(const Scratch& scratch, int expert, int token, unsigned mask,
                                 int row) {
  scratch.row_token[row] = token;
  const int index = __popc(mask & ((1u << expert) - 1));
  scratch.place[static_cast<int64_t>(token) * kTop + index] = row;
}

/// Routing and rows for few tokens: one cluster. A warp routes a token and tells all blocks; then
/// each block lists the rows of its experts.
__global__ void __launch_bounds__(kRouteFewThreads) route_few(Problem problem, Scratch scratch) {
  __shared__ unsigned masks[kRouteFew];
  constexpr int kWarps = kRouteFewThreads / 32;
  constexpr int kEach = kLocal / kRouteBlocks;  // experts
  release_next_kernel();
  const int block = kRouteBlocks == 1 ? 0 : static_cast<int>(rank_in_cluster());
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if constexpr (kRouteBlocks > 1) cluster_meet();  // all of them run
  for (int i = block * kRouteFewThreads + threadIdx.x; i < scratch.zeros;
       i += kRouteBlocks * kRouteFewThreads) {
    scratch.head[i] = 0;
  }
  for (int token = block + warp * kRouteBlocks; token < problem.tokens;
       token += kRouteBlocks * kWarps) {
    const unsigned mask = route_token(problem, scratch, token);
    if (lane == 0) scratch.local[token] = mask;
    if constexpr (kRouteBlocks == 1) {
      if (lane == 0) masks[token] = mask;
    } else {
      if (lane < kRouteBlocks) store_in_cluster(lane, shared_address(masks + token), mask);
    }
  }
  if constexpr (kRouteBlocks == 1) {
    __syncthreads();
  } else {
    cluster_meet();
  }
  for (int expert = block * kEach + warp; expert < (block + 1) * kEach; expert += kWarps) {
    int count = 0;
    int below = 0;  // rows of the experts before this one
    for (int begin = 0; begin < problem.tokens; begin += 32) {
      const unsigned mask = begin + lane < problem.tokens ? masks[begin + lane] : 0;
      count += mask >> expert & 1;
      below += __popc(mask & ((1u << expert) - 1));
    }
    count = __reduce_add_sync(kAllLanes, count);
    int row = __reduce_add_sync(kAllLanes, below);
    if (lane == 0) {
      scratch.count[expert] = count;
      scratch.first[expert] = row;
    }
    for (int begin = 0; begin < problem.tokens; begin += 32) {
      const int token = begin + lane;
      const unsigned mask = token < problem.tokens ? masks[token] : 0;
      const bool here = mask >> expert & 1;
      const unsigned all = __ballot_sync(kAllLanes, here);
      if (here) place_row(scratch, expert, token, mask, row + __popc(all & ((1u << lane) - 1)));
      row += __popc(all);
    }
  }
}

/// Routing alone, a warp for each token.
__global__ void __launch_bounds__(kRouteThreads) route_many(Problem problem, Scratch scratch) {
  release_next_kernel();
  const int token = blockIdx.x * (kRouteThreads / 32) + threadIdx.x / 32;
  if (token >= problem.tokens) return;
  const unsigned mask = route_token(problem, scratch, token);
  if (threadIdx.x % 32 == 0) scratch.local[token] = mask;
}

/// Rows of one expert for each block, after route_many. A thread has neighbouring tokens.
__global__ void __launch_bounds__(kPackThreads) pack_rows(Problem problem, Scratch scratch) {
  __shared__ int sums[32];
  __shared__ int below_sums[32];
  release_next_kernel();
  const int expert = blockIdx.x;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  for (int i = expert * kPackThreads + threadIdx.x; i < scratch.zeros; i += kLocal * kPackThreads) {
    scratch.head[i] = 0;
  }
  wait_for_previous_kernel();
  const int each = (problem.tokens + kPackThreads - 1) / kPackThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * each, problem.tokens);
  const int end = min(begin + each, problem.tokens);
  int count = 0;
  int below = 0;  // rows of the experts before this one
#pragma unroll 8
  for (int token = begin; token < end; ++token) {
    const unsigned mask = __ldcg(scratch.local + token);
    count += mask >> expert & 1;
    below += __popc(mask & ((1u << expert) - 1));
  }
  int sum = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  below = __reduce_add_sync(kAllLanes, below);
  if (lane == 31) {
    sums[warp] = sum;
    below_sums[warp] = below;
  }
  __syncthreads();
  const int first = __reduce_add_sync(kAllLanes, below_sums[lane]);
  const int before = __reduce_add_sync(kAllLanes, lane < warp ? sums[lane] : 0);
  if (threadIdx.x == kPackThreads - 1) {
    scratch.count[expert] = before + sum;
    scratch.first[expert] = first;
  }
  int row = first + before + sum - count;
  for (int token = begin; token < end; ++token) {
    const unsigned mask = __ldcg(scratch.local + token);
    if (mask >> expert & 1) place_row(scratch, expert, token, mask, row++);
  }
}

}  // namespace moe
