// Scores of the 64 tokens of a page by one warpgroup: 64 x 128 keys times 128 x 64 queries.
//
// Keys never pass through shared memory. Which product index stands for which element of a key is
// free, as long as queries agree; it is chosen so that a lane's operands of a token are two runs of
// 16 bytes. Hopper's products of e4m3 keep some 14 bits of a sum; so both factors become halves, in
// which e4m3 numbers are exact, and sums are float32.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"
#include "wgmma.cuh"

namespace topk {

constexpr int kSteps = kDim / 16;
constexpr int kHalfBytes = kHeads * 128;          // of queries: 64 of 128 elements of each head
constexpr int kQueryBytes = 2 * kHalfBytes;

/// What a lane holds of a page: of token 16 w + lane / 4 and of the one 8 later, the bytes from
/// 16 (lane % 4) and from 64 + 16 (lane % 4) on. Word i of these 8 is the lane's share of step i.
struct PageShare {
  uint4 near[2];
  uint4 far[2];
  float scale[2];
};

struct Place {
  int warp;   // of the warpgroup
  int token;  // lane / 4
  int share;  // lane % 4
};

__device__ __forceinline__ Place place_of_thread() {
  const int lane = threadIdx.x % 32;
  return {static_cast<int>(threadIdx.x / 32 % 4), lane / 4, lane % 4};
}

/// The same for all lanes, and known to the compiler to be.
__device__ __forceinline__ int warpgroup_of_thread() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
}

__device__ __forceinline__ void load_share(PageShare& share, const uint8_t* page,
                                           const Place& place, uint64_t policy) {
  const int token = 16 * place.warp + place.token;
  const uint8_t* bytes = page + token * kDim + 16 * place.share;
  share.near[0] = load_page_bytes(bytes, policy);
  share.near[1] = load_page_bytes(bytes + 64, policy);
  share.far[0] = load_page_bytes(bytes + 8 * kDim, policy);
  share.far[1] = load_page_bytes(bytes + 8 * kDim + 64, policy);
  const float* scales = reinterpret_cast<const float*>(page + kPage * kDim) + token;
  share.scale[0] = __ldg(scales);
  share.scale[1] = __ldg(scales + 8);
}

/// A thread's share of the queries and weights of a row, on its way to shared memory.
struct RowShare {
  static constexpr int kPieces = kHeads * kDim / 16;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  uint4 queries[kLoads];
  float2 weights;

  __device__ __forceinline__ void load(const uint8_t* row_queries, const float* row_weights) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int i = threadIdx.x + j * kThreads;
      if (i < kPieces) queries[j] = __ldg(reinterpret_cast<const uint4*>(row_queries) + i);
    }
    if (threadIdx.x < kHeads / 2) {
      weights = __ldg(reinterpret_cast<const float2*>(row_weights) + threadIdx.x);
    }
  }

  /// Queries as halves: two parts of 64 rows (heads) of 128 bytes, 16-byte piece p of a row at
  /// p ^ (row % 8).
  __device__ __forceinline__ void store(uint32_t target, float2* row_weights) const {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int i = threadIdx.x + j * kThreads;
      if (i >= kPieces) break;
      const int head = i / 8, part = i / 4 % 2, share = i % 4;
      const uint32_t row = target + part * kHalfBytes + head * 128 + 4 * share;
      const uint32_t words[4] = {queries[j].x, queries[j].y, queries[j].z, queries[j].w};
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint32_t low, high;
        to_halves(words[step], low, high);
        store_shared_word(row + (((2 * step) ^ (head % 8)) << 4), low);
        store_shared_word(row + (((2 * step + 1) ^ (head % 8)) << 4), high);
      }
    }
    if (threadIdx.x < kHeads / 2) row_weights[threadIdx.x] = weights;
    order_before_async();
  }
};

#if TOPK_WARPGROUPS

__device__ __forceinline__ void products_start(float (&c)[32], const uint32_t (&a)[kSteps][4],
                                               uint32_t queries) {
  const uint64_t factor = factor_at(queries);
  groups_begin();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    multiply(c, a[step], factor + ((step / 4 * kHalfBytes + step % 4 * 32) >> 4), step > 0);
  }
  groups_commit();
}

__device__ __forceinline__ void products_wait(float (&c)[32]) { groups_wait(c); }

#else

/// The same by products of single warps, whose results lie in the same lanes.
__device__ __forceinline__ void products_start(float (&c)[32], const uint32_t (&a)[kSteps][4],
                                               uint32_t queries) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) c[i] = 0.0f;
#pragma unroll
  for (int column = 0; column < kHeads / 8; ++column) {
    const uint32_t row = queries + (8 * column + lane / 4) * 128 + 4 * (lane % 4);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t part = row + step / 4 * kHalfBytes;
      const int piece = 2 * (step % 4);
      const uint32_t b0 = load_shared_word(part + ((piece ^ (lane / 4)) << 4));
      const uint32_t b1 = load_shared_word(part + (((piece + 1) ^ (lane / 4)) << 4));
      multiply_warp(c + 4 * column, a[step], b0, b1);
    }
  }
}

__device__ __forceinline__ void products_wait(float (&)[32]) {}

#endif

/// First factors of all steps.
__device__ __forceinline__ void to_factors(uint32_t (&a)[kSteps][4], const PageShare& share) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const uint4 near = share.near[part], far = share.far[part];
    const uint32_t near_words[4] = {near.x, near.y, near.z, near.w};
    const uint32_t far_words[4] = {far.x, far.y, far.z, far.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t(&factor)[4] = a[4 * part + i];
      to_halves(near_words[i], factor[0], factor[2]);
      to_halves(far_words[i], factor[1], factor[3]);
    }
  }
}

/// Scores of the lane's two tokens, in all lanes that share them.
__device__ __forceinline__ float2 weighted(const float (&c)[32], const float2* weights,
                                           const float (&scale)[2], int share) {
  float near[2] = {0.0f, 0.0f}, far[2] = {0.0f, 0.0f};
#pragma unroll
  for (int column = 0; column < kHeads / 8; ++column) {
    const float2 w = weights[4 * column + share];
    near[0] = fmaf(w.x, fmaxf(c[4 * column], 0.0f), near[0]);
    near[1] = fmaf(w.y, fmaxf(c[4 * column + 1], 0.0f), near[1]);
    far[0] = fmaf(w.x, fmaxf(c[4 * column + 2], 0.0f), far[0]);
    far[1] = fmaf(w.y, fmaxf(c[4 * column + 3], 0.0f), far[1]);
  }
  float x = near[0] + near[1], y = far[0] + far[1];
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
    y += __shfl_xor_sync(kAllLanes, y, distance);
  }
  return {x * scale[0], y * scale[1]};
}

}  // namespace topk
