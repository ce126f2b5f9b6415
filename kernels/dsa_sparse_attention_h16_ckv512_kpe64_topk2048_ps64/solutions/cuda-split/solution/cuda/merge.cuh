// The blocks of a query token exchange their averages through memory, and each merges some columns.
//
// What is exchanged is its own flag: a word with every bit set is not there yet. That is a NaN that
// no instruction makes. Each word has one block that reads it, and that sets it back, so that
// nothing has to be cleared between calls.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

constexpr uint32_t kAbsent = 0xffffffffu;

template <class S>
class Merge {
 public:
  __device__ Merge(const Problem& problem, uint32_t memory, int64_t token, int split)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    // A warp adds up kParts blocks of one tile.
    const int64_t tile = token_ * kTiles + split_ * S::kOwnTiles + warp_ / kWarpsPerTile;
    const int first = warp_ % kWarpsPerTile * kParts;
    uint2* const cells = problem_.parts + (tile * S::kSplits + first) * 32 + lane_;
    uint2 parts[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) parts[i] = load_global(cells + i * 32);
    receive_logs();
    __syncthreads();
    find_shares();
    __syncthreads();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      while (parts[i].x == kAbsent || parts[i].y == kAbsent) parts[i] = load_global(cells + i * 32);
      store_global(cells + i * 32, make_uint2(kAbsent, kAbsent));
      const uint32_t shares = memory_ + S::kShares + (first + i) * kSharePitch + lane_ / 4 * 4;
      const float upper = load_shared_float(shares);
      const float lower = load_shared_float(shares + 8 * 4);
      sum.x += upper * low_bf16(parts[i].x);
      sum.y += upper * high_bf16(parts[i].x);
      sum.z += lower * low_bf16(parts[i].y);
      sum.w += lower * high_bf16(parts[i].y);
    }
    store_shared(memory_ + S::kMerged + threadIdx.x * 16, sum);
    __syncthreads();
    write_output();
  }

 private:
  static constexpr int kWarpsPerTile = kWarps / S::kOwnTiles;
  static constexpr int kParts = S::kSplits / kWarpsPerTile;
  static constexpr int kLogs = S::kSplits * kHeads / kThreads;  // of a thread

  __device__ __forceinline__ void receive_logs() {
    float* const cells =
        problem_.logs + (token_ * S::kSplits + split_) * S::kSplits * kHeads + threadIdx.x;
    uint32_t logs[kLogs];
#pragma unroll
    for (int i = 0; i < kLogs; ++i) logs[i] = load_global(cells + i * kThreads);
#pragma unroll
    for (int i = 0; i < kLogs; ++i) {
      while (logs[i] == kAbsent) logs[i] = load_global(cells + i * kThreads);
      store_global(cells + i * kThreads, __uint_as_float(kAbsent));
      const int split = (threadIdx.x + i * kThreads) / kHeads;
      store_shared_word(memory_ + S::kShares + split * kSharePitch + threadIdx.x % kHeads * 4,
                        logs[i]);
    }
  }

  /// How much the average of each block counts; the block of a head's number writes its lse.
  __device__ __forceinline__ void find_shares() {
    static_assert(kThreads == kHeads * 16);
    constexpr int kOwn = S::kSplits / 16;
    const int head = threadIdx.x / 16;
    const uint32_t shares = memory_ + S::kShares + threadIdx.x % 16 * kSharePitch + head * 4;
    float logs[kOwn];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      logs[i] = load_shared_float(shares + i * 16 * kSharePitch);
      top = fmaxf(top, logs[i]);
    }
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) {
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, distance));
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      logs[i] = exp2_short(logs[i] - (top == -INFINITY ? 0.0f : top));
      sum += logs[i];
    }
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    const float norm = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      store_shared_float(shares + i * 16 * kSharePitch, logs[i] * norm);
    }
    if (threadIdx.x % 16 == 0 && head == split_) {
      problem_.lse[token_ * kHeads + head] = top + log2f(sum);
    }
  }

  /// Two elements a thread.
  __device__ __forceinline__ void write_output() {
    if (threadIdx.x >= S::kOwnTiles * 64) return;
    const int tile = threadIdx.x / 64;
    const int lane = threadIdx.x % 64 / 2;
    const int below = threadIdx.x % 2;
    const uint32_t merged =
        memory_ + S::kMerged + (tile * kWarpsPerTile * 32 + lane) * 16 + below * 8;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kWarpsPerTile; ++i) {
      const float2 x = load_shared_pair(merged + i * 512);
      sum.x += x.x;
      sum.y += x.y;
    }
    const int64_t head = token_ * kHeads + lane / 4 + below * 8;
    const int column = (split_ * S::kOwnTiles + tile) * kTileColumns + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(problem_.output + head * kLatent + column) =
        pack_bf16(sum.x, sum.y);
  }

  const Problem& problem_;
  const uint32_t memory_;
  const int64_t token_;
  const int split_;
  const int warp_;
  const int lane_;
};

}  // namespace dsa
