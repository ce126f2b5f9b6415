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
  /// `threads` threads come to this with barrier `meeting` for themselves.
  __device__ Merge(const Problem& problem, uint32_t memory, int token, int split,
                   unsigned thread, int meeting, int threads)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        thread_(thread),
        warp_(static_cast<int>(thread / 32)),
        lane_(static_cast<int>(thread % 32)),
        meeting_(meeting),
        threads_(threads) {}

  /// If not `real`, nothing is waited for, and nothing in memory read or written.
  __device__ __forceinline__ void run(bool real) {
    uint32_t logs[kLogs];
    uint2 parts[kParts];
    const uint32_t before = real ? kAbsent : 0;
#pragma unroll
    for (int i = 0; i < kLogs; ++i) logs[i] = before;
#pragma unroll
    for (int i = 0; i < kParts; ++i) parts[i] = make_uint2(before, before);
    receive(logs, parts, real);
    find_shares(logs, real);
    warps_meet(meeting_, threads_);
    add_parts(parts, real);
    warps_meet(meeting_, threads_);
    write_output(real);
  }

 private:
  static constexpr int kWarpsPerTile = kWarps / S::kOwnTiles;
  static constexpr int kParts = S::kSplits / kWarpsPerTile;    // of one tile, of a lane
  static constexpr int kLogs = S::kSplits * kHeads / kThreads;  // of one head, of a thread

  static __device__ bool missing(uint32_t log) { return log == kAbsent; }
  static __device__ bool missing(uint2 part) { return part.x == kAbsent || part.y == kAbsent; }

  __device__ __forceinline__ void receive(uint32_t (&logs)[kLogs], uint2 (&parts)[kParts],
                                          bool real) {
    uint32_t* const log = problem_.logs +
                          ((token_ * S::kSplits + split_) * S::kSplits + thread_ % 16) * kHeads +
                          thread_ / 16;
    const int tile = token_ * kTiles + split_ * S::kOwnTiles + warp_ / kWarpsPerTile;
    const int first = warp_ % kWarpsPerTile * kParts;
    uint2* const part = problem_.parts + (tile * S::kSplits + first) * 32 + lane_;
    // What is there is not asked for again.
    bool absent;
    do {
#pragma unroll
      for (int i = 0; i < kLogs; ++i) load_global(logs[i], log + i * 16 * kHeads, missing(logs[i]));
#pragma unroll
      for (int i = 0; i < kParts; ++i) load_global(parts[i], part + i * 32, missing(parts[i]));
      absent = false;
#pragma unroll
      for (int i = 0; i < kLogs; ++i) absent |= missing(logs[i]);
#pragma unroll
      for (int i = 0; i < kParts; ++i) absent |= missing(parts[i]);
    } while (absent);
#pragma unroll
    for (int i = 0; i < kLogs; ++i) store_global(log + i * 16 * kHeads, kAbsent, real);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      store_global(part + i * 32, make_uint2(kAbsent, kAbsent), real);
    }
  }

  /// How much the average of each block counts; the block of a head's number writes its lse.
  __device__ __forceinline__ void find_shares(const uint32_t (&logs)[kLogs], bool real) {
    static_assert(kThreads == kHeads * 16);
    const unsigned head = thread_ / 16;
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kLogs; ++i) top = fmaxf(top, __uint_as_float(logs[i]));
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) {
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, distance));
    }
    float shares[kLogs];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kLogs; ++i) {
      shares[i] = exp2_short(__uint_as_float(logs[i]) - (top == -INFINITY ? 0.0f : top));
      sum += shares[i];
    }
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    const float norm = sum > 0.0f ? reciprocal(sum) : 0.0f;
    const uint32_t address = memory_ + S::kShares + thread_ % 16 * kSharePitch + head * 4;
#pragma unroll
    for (int i = 0; i < kLogs; ++i) {
      store_shared_float(address + i * 16 * kSharePitch, shares[i] * norm, real);
    }
    const uint32_t log = __float_as_uint(top + log2_short(sum));
    store_global(reinterpret_cast<uint32_t*>(problem_.lse) + token_ * kHeads + head, log,
                 real && thread_ % 16 == 0 && static_cast<int>(head) == split_);
  }

  /// Of a tile, those that the warp has.
  __device__ __forceinline__ void add_parts(const uint2 (&parts)[kParts], bool real) {
    const int first = warp_ % kWarpsPerTile * kParts;
    const uint32_t shares = memory_ + S::kShares + first * kSharePitch + lane_ / 4 * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float upper = load_shared_float(shares + i * kSharePitch);
      const float lower = load_shared_float(shares + i * kSharePitch + 8 * 4);
      sum.x += upper * low_bf16(parts[i].x);
      sum.y += upper * high_bf16(parts[i].x);
      sum.z += lower * low_bf16(parts[i].y);
      sum.w += lower * high_bf16(parts[i].y);
    }
    store_shared(memory_ + S::kMerged + thread_ * 16, sum, real);
  }

  /// Two elements a thread.
  __device__ __forceinline__ void write_output(bool real) {
    const unsigned tile = thread_ / 64 % S::kOwnTiles;
    const unsigned lane = thread_ % 64 / 2;
    const unsigned below = thread_ % 2;
    const uint32_t merged =
        memory_ + S::kMerged + (tile * kWarpsPerTile * 32 + lane) * 16 + below * 8;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < kWarpsPerTile; ++i) {
      const float2 x = load_shared_pair(merged + i * 512);
      sum.x += x.x;
      sum.y += x.y;
    }
    const unsigned head = token_ * kHeads + lane / 4 + below * 8;
    const unsigned column = (split_ * S::kOwnTiles + tile) * kTileColumns + lane % 4 * 2;
    store_global(reinterpret_cast<uint32_t*>(problem_.output + head * kLatent + column),
                 pack_bf16(sum.x, sum.y), real && thread_ < S::kOwnTiles * 64);
  }

  const Problem& problem_;
  const uint32_t memory_;
  const int token_;
  const int split_;
  const unsigned thread_;
  const int warp_;
  const int lane_;
  const int meeting_;
  const int threads_;
};

}  // namespace dsa
