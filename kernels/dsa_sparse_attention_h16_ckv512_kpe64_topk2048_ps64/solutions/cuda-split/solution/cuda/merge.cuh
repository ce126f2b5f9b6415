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

#include "attend.cuh"
#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

template <class S>
class Merge {
 public:
  __device__ Merge(const Problem& problem, uint32_t memory, int token, int split)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  /// If not `real`, nothing in memory is waited for, read or written.
  __device__ __forceinline__ void run(bool real) {
    receive_logs(real);
    warps_meet(kAllMeet, kThreads);
    find_shares(real);
    warps_meet(kAllMeet, kThreads);
    add_parts(real);
    warps_meet(kAllMeet, kThreads);
    write_output(real);
  }

 private:
  static constexpr int kWarpsPerTile = kWarps / S::kOwnTiles;
  static constexpr int kParts = S::kSplits / kWarpsPerTile;
  static constexpr int kLogs = S::kSplits * kHeads / kThreads;  // of a thread

  __device__ __forceinline__ void receive_logs(bool real) {
    uint32_t* const cells =
        problem_.logs + (token_ * S::kSplits + split_) * S::kSplits * kHeads + threadIdx.x;
    uint32_t logs[kLogs] = {};
    bool absent;
    do {
      absent = false;
#pragma unroll
      for (int i = 0; i < kLogs; ++i) load_global(logs[i], cells + i * kThreads, real);
#pragma unroll
      for (int i = 0; i < kLogs; ++i) absent |= logs[i] == kAbsent;
    } while (absent);
    const uint32_t shares =
        memory_ + S::kShares + threadIdx.x / kHeads * kSharePitch + threadIdx.x % kHeads * 4;
#pragma unroll
    for (int i = 0; i < kLogs; ++i) {
      store_global(cells + i * kThreads, kAbsent, real);
      store_shared_word(shares + i * (kThreads / kHeads) * kSharePitch, logs[i]);
    }
  }

  /// How much the average of each block counts; the block of a head's number writes its lse.
  __device__ __forceinline__ void find_shares(bool real) {
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
    const float norm = sum > 0.0f ? reciprocal(sum) : 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      store_shared_float(shares + i * 16 * kSharePitch, logs[i] * norm);
    }
    const uint32_t log = __float_as_uint(top + log2_short(sum));
    store_global(reinterpret_cast<uint32_t*>(problem_.lse) + token_ * kHeads + head, log,
                 real && threadIdx.x % 16 == 0 && head == split_);
  }

  /// A warp adds up kParts blocks of one tile.
  __device__ __forceinline__ void add_parts(bool real) {
    const int tile = token_ * kTiles + split_ * S::kOwnTiles + warp_ / kWarpsPerTile;
    const int first = warp_ % kWarpsPerTile * kParts;
    uint2* const cells = problem_.parts + (tile * S::kSplits + first) * 32 + lane_;
    uint2 parts[kParts] = {};
    bool absent;
    do {
      absent = false;
#pragma unroll
      for (int i = 0; i < kParts; ++i) load_global(parts[i], cells + i * 32, real);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        absent |= parts[i].x == kAbsent || parts[i].y == kAbsent;
      }
    } while (absent);
    const uint32_t shares = memory_ + S::kShares + first * kSharePitch + lane_ / 4 * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      store_global(cells + i * 32, make_uint2(kAbsent, kAbsent), real);
      const float upper = load_shared_float(shares + i * kSharePitch);
      const float lower = load_shared_float(shares + i * kSharePitch + 8 * 4);
      sum.x += upper * low_bf16(parts[i].x);
      sum.y += upper * high_bf16(parts[i].x);
      sum.z += lower * low_bf16(parts[i].y);
      sum.w += lower * high_bf16(parts[i].y);
    }
    store_shared(memory_ + S::kMerged + threadIdx.x * 16, sum);
  }

  /// Two elements a thread.
  __device__ __forceinline__ void write_output(bool real) {
    const int tile = threadIdx.x / 64 % S::kOwnTiles;
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
    const int head = token_ * kHeads + lane / 4 + below * 8;
    const int column = (split_ * S::kOwnTiles + tile) * kTileColumns + lane % 4 * 2;
    store_global(reinterpret_cast<uint32_t*>(problem_.output + head * kLatent + column),
                 pack_bf16(sum.x, sum.y), real && threadIdx.x < S::kOwnTiles * 64);
  }

  const Problem& problem_;
  const uint32_t memory_;
  const int token_;
  const int split_;
  const int warp_;
  const int lane_;
};

}  // namespace dsa
