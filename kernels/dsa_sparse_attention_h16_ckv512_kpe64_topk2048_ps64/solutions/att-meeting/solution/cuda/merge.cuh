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
  __device__ Merge(const Problem& problem, uint32_t memory, int token, int split, unsigned thread)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        thread_(thread),
        warp_(thread / 32),
        lane_(thread % 32) {}

  __device__ __forceinline__ void run() {
    const unsigned tile =
        token_ * kTiles + split_ * S::kOwnTiles + warp_ / kWarpsPerTile;
    const unsigned first = warp_ % kWarpsPerTile * kParts;
    uint2* const parts = problem_.parts + (tile * S::kSplits + first) * 32 + lane_;
    uint2* const logs = problem_.logs + (token_ * S::kSplits + split_) * S::kSplits * 8;
    add_parts(parts, logs + first * 8 + lane_ / 4);
    warps_meet(kAllMeet, kThreads);
    write_output();
    const uint2 absent = make_uint2(kAbsent, kAbsent);
#pragma unroll
    for (int i = 0; i < kParts; ++i) store_global(parts + i * 32, absent);
#pragma unroll
    for (int i = 0; i < S::kSplits * 8; i += kThreads) {
      if (i + thread_ < S::kSplits * 8) store_global(logs + i + thread_, absent);
    }
  }

 private:
  static constexpr int kWarpsPerTile = kWarps / S::kOwnTiles;
  static constexpr int kParts = S::kSplits / kWarpsPerTile;  // of one tile, of a warp

  static __device__ bool missing(uint2 x) { return x.x == kAbsent || x.y == kAbsent; }

  /// Of a tile, those that the warp has; their sum is relative to their largest log-sum-exp.
  __device__ __forceinline__ void add_parts(const uint2* from, const uint2* logs_from) {
    uint2 parts[kParts];
    uint2 logs[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) logs[i] = parts[i] = make_uint2(kAbsent, kAbsent);
    bool absent;
    do {  // what is there is not asked for again
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        load_global(logs[i], logs_from + i * 8, missing(logs[i]));
        load_global(parts[i], from + i * 32, missing(parts[i]));
      }
      absent = false;
#pragma unroll
      for (int i = 0; i < kParts; ++i) absent |= missing(logs[i]) || missing(parts[i]);
    } while (absent);
    float2 top = make_float2(-INFINITY, -INFINITY);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      top.x = fmaxf(top.x, __uint_as_float(logs[i].x));
      top.y = fmaxf(top.y, __uint_as_float(logs[i].y));
    }
    const float upper_shift = top.x == -INFINITY ? 0.0f : top.x;
    const float lower_shift = top.y == -INFINITY ? 0.0f : top.y;
    float2 share = make_float2(0.0f, 0.0f);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float upper = exp2_short(__uint_as_float(logs[i].x) - upper_shift);
      const float lower = exp2_short(__uint_as_float(logs[i].y) - lower_shift);
      share.x += upper;
      share.y += lower;
      sum.x += upper * low_bf16(parts[i].x);
      sum.y += upper * high_bf16(parts[i].x);
      sum.z += lower * low_bf16(parts[i].y);
      sum.w += lower * high_bf16(parts[i].y);
    }
    store_shared(memory_ + S::kMerged + thread_ * 16, sum);
    if (lane_ % 4 == 0) {
      store_shared(memory_ + S::kScales + (warp_ * 8 + lane_ / 4) * 16,
                   make_float4(top.x, share.x, top.y, share.y));
    }
  }

  /// Two elements a thread; the block of a head's number writes its lse.
  __device__ __forceinline__ void write_output() {
    if (thread_ >= S::kOwnTiles * 64) return;
    const unsigned tile = thread_ / 64;
    const unsigned lane = thread_ % 64 / 2;
    const unsigned below = thread_ % 2;
    const unsigned warp = tile * kWarpsPerTile;
    const uint32_t merged = memory_ + S::kMerged + (warp * 32 + lane) * 16 + below * 8;
    const uint32_t scales = memory_ + S::kScales + (warp * 8 + lane / 4) * 16 + below * 8;
    float2 scale[kWarpsPerTile];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kWarpsPerTile; ++i) {
      scale[i] = load_shared_pair(scales + i * 8 * 16);
      top = fmaxf(top, scale[i].x);
    }
    const float shift = top == -INFINITY ? 0.0f : top;
    float share = 0.0f;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kWarpsPerTile; ++i) {
      const float2 x = load_shared_pair(merged + i * 512);
      const float weight = exp2_short(scale[i].x - shift);
      share += weight * scale[i].y;
      sum.x += weight * x.x;
      sum.y += weight * x.y;
    }
    const float norm = share > 0.0f ? reciprocal(share) : 0.0f;
    const unsigned head = lane / 4 + below * 8;
    const unsigned row = token_ * kHeads + head;
    const unsigned column = (split_ * S::kOwnTiles + tile) * kTileColumns + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(problem_.output + row * kLatent + column) =
        pack_bf16(sum.x * norm, sum.y * norm);
    if (tile == 0 && lane % 4 == 0 && static_cast<int>(head) == split_) {
      problem_.lse[row] = top + log2_short(share);
    }
  }

  const Problem& problem_;
  const uint32_t memory_;
  const int token_;
  const int split_;
  const unsigned thread_;
  const unsigned warp_;
  const unsigned lane_;
};

}  // namespace dsa
