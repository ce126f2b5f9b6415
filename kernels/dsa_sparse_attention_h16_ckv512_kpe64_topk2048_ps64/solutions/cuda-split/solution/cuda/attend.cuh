// A block's share of a query token: at most kRows of its selected tokens, for all heads.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

constexpr int kSteps = (kLatent + kRope) / 16;  // of a product of queries and keys

/// What a warp has: the queries, and of the output the columns 64 * warp and on.
class Share {
 public:
  __device__ Share(const Problem& problem, uint32_t memory, int64_t token, int part)
      : problem_(problem),
        memory_(memory),
        token_(token),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    // Lane i knows the token of row i % 8 of stage i / 8 of this warp.
    const int place = part * kRows + lane_ / 8 * kStageRows + warp_ * 8 + lane_ % 8;
    id_ = -1;
    if (lane_ < kStages * 8) id_ = __ldg(problem.selected + token * kPlaces + place);
  }

  __device__ __forceinline__ void load_queries() {
    for (int i = threadIdx.x; i < kHeads * kLatentBytes / 16; i += kThreads) {
      const int head = i / (kLatentBytes / 16);
      const int byte = i % (kLatentBytes / 16) * 16;
      const auto* source = bytes_of(problem_.q_nope) + (token_ * kHeads + head) * kLatentBytes;
      copy_async(memory_ + Memory::kQueries + head * kPitch + byte, source + byte, true);
    }
    if (threadIdx.x < kHeads * kRopeBytes / 16) {
      const int head = threadIdx.x / (kRopeBytes / 16);
      const int byte = threadIdx.x % (kRopeBytes / 16) * 16;
      const auto* source = bytes_of(problem_.q_pe) + (token_ * kHeads + head) * kRopeBytes;
      copy_async(memory_ + Memory::kQueries + head * kPitch + kLatentBytes + byte, source + byte,
                 true);
    }
    copy_async_commit();
  }

  /// The 8 rows of the warp in a stage; rows that nothing is selected for become zeros.
  __device__ __forceinline__ void load_rows(int stage) {
    const uint32_t target = row_address(stage, 0);
#pragma unroll
    for (int row = 0; row < 8; ++row) {
      const int id = __shfl_sync(kAllLanes, id_, stage * 8 + row);
      const auto* source = bytes_of(problem_.ckv) + int64_t{max(id, 0)} * kLatentBytes;
#pragma unroll
      for (int byte = 0; byte < kLatentBytes; byte += 512) {
        copy_async(target + row * kPitch + byte + lane_ * 16, source + byte + lane_ * 16, id >= 0);
      }
    }
#pragma unroll
    for (int row = 0; row < 8; row += 4) {
      const int own = row + lane_ / 8;
      const int id = __shfl_sync(kAllLanes, id_, stage * 8 + own);
      const auto* source = bytes_of(problem_.kpe) + int64_t{max(id, 0)} * kRopeBytes;
      const int byte = lane_ % 8 * 16;
      copy_async(target + own * kPitch + kLatentBytes + byte, source + byte, id >= 0);
    }
    copy_async_commit();
  }

  /// After load_queries has arrived and all warps have met.
  __device__ __forceinline__ void hold_queries() {
    const uint32_t address =
        memory_ + Memory::kQueries + lane_ % 16 * kPitch + lane_ / 16 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load_matrices(q_[step], address + step * 32);
  }

  /// Takes in a stage, the rows of which this warp sees; ends with its weighted sum.
  __device__ __forceinline__ void add_stage(int stage) {
    float logits[4];
    multiply_keys(stage, logits);
    const float top = fmaxf(logits[0], logits[1]);
    const float top_below = fmaxf(logits[2], logits[3]);
    publish(Memory::kTops, over_quad(top), over_quad(top_below));
    __syncthreads();  // and the rows of all warps are there
    weigh(stage, logits);
    __syncthreads();
    add_values(stage);
  }

  __device__ __forceinline__ void publish_sums() {
    float sums[2];
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sums[half] = sum;
    }
    publish(Memory::kSums, sums[0], sums[1]);
    if (warp_ == 0 && lane_ % 4 == 0) {
      store_shared_float(memory_ + Memory::kOwnTops + lane_ / 4 * 4, top_[0]);
      store_shared_float(memory_ + Memory::kOwnTops + (lane_ / 4 + 8) * 4, top_[1]);
    }
  }

  /// Sends each block of the cluster its columns of this one's sums.
  __device__ __forceinline__ void send_parts(int rank) {
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      const int number = warp_ * kTilesPerWarp + tile;
      const uint32_t own = rank * kTilesPerBlock + number % kTilesPerBlock;
      const uint32_t address =
          memory_ + Memory::kPartInbox + own * kTileBytes + lane_ * 16;
      store_remote(in_block(address, number / kTilesPerBlock),
                   make_float4(o_[tile][0], o_[tile][1], o_[tile][2], o_[tile][3]));
    }
  }

 private:
  static __device__ const char* bytes_of(const __nv_bfloat16* data) {
    return reinterpret_cast<const char*>(data);
  }

  __device__ uint32_t row_address(int stage, int row) const {
    return memory_ + Memory::kKeys + (stage * kStageRows + warp_ * 8 + row) * kPitch;
  }

  static __device__ __forceinline__ float over_quad(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  }

  /// One float of this warp for each head: lane 4 * i has those of heads i and i + 8.
  __device__ __forceinline__ void publish(uint32_t where, float upper, float lower) {
    if (lane_ % 4 != 0) return;
    const uint32_t address = memory_ + where + (lane_ / 4 * kWarps + warp_) * 4;
    store_shared_float(address, upper);
    store_shared_float(address + 8 * kWarps * 4, lower);
  }

  /// Heads lane / 4 (0, 1) and 8 more (2, 3), rows 2 * (lane % 4) and the next.
  __device__ __forceinline__ void multiply_keys(int stage, float (&logits)[4]) {
    float c[4][4] = {};  // sums that do not wait for each other
    const uint32_t address = row_address(stage, lane_ % 8) + lane_ / 8 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      uint32_t keys[4];
      load_matrices(keys, address + step * 32);
      mma_bf16(c[step % 4], q_[step], keys[0], keys[1]);
      mma_bf16(c[step % 4 + 1], q_[step + 1], keys[2], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int id = __shfl_sync(kAllLanes, id_, stage * 8 + lane_ % 4 * 2 + i % 2);
      const float logit = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
      logits[i] = id >= 0 ? logit * problem_.factor : -INFINITY;
    }
  }

  /// Weights relative to the largest logit so far, and what that does to earlier sums.
  __device__ __forceinline__ void weigh(int stage, const float (&logits)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = lane_ / 4 + half * 8;
      const uint32_t tops = memory_ + Memory::kTops + head * kWarps * 4;
      const float4 a = load_shared(tops);
      const float4 b = load_shared(tops + 16);
      float top = fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)),
                        fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
      if (stage > 0) top = fmaxf(top, top_[half]);
      const float shift = top == -INFINITY ? 0.0f : top;  // no token so far
      const float low = exp2_short(logits[half * 2] - shift);
      const float high = exp2_short(logits[half * 2 + 1] - shift);
      store_shared_word(memory_ + Memory::kWeights + head * kWeightPitch + warp_ * 16 +
                            lane_ % 4 * 4,
                        pack_bf16(low, high));
      if (stage > 0) {
        const float fade = exp2_short(top_[half] - shift);
        sum_[half] = sum_[half] * fade + (low + high);
        fade_[half] = fade;
      } else {
        sum_[half] = low + high;
      }
      top_[half] = top;
    }
  }

  __device__ __forceinline__ void add_values(int stage) {
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] = stage > 0 ? o_[tile][i] * fade_[i / 2] : 0.0f;
    }
    const uint32_t weights =
        memory_ + Memory::kWeights + lane_ % 16 * kWeightPitch + lane_ / 16 * 16;
    const uint32_t values = memory_ + Memory::kKeys + (stage * kStageRows + lane_ % 16) * kPitch +
                            warp_ * kTilesPerWarp * 16 + lane_ / 16 * 16;
#pragma unroll
    for (int row = 0; row < kStageRows; row += 16) {
      uint32_t p[4];
      load_matrices(p, weights + row * 2);
#pragma unroll
      for (int tile = 0; tile < kTilesPerWarp; tile += 2) {
        uint32_t v[4];
        load_matrices_transposed(v, values + row * kPitch + tile * 16);
        mma_bf16(o_[tile], p, v[0], v[1]);
        mma_bf16(o_[tile + 1], p, v[2], v[3]);
      }
    }
  }

  const Problem& problem_;
  const uint32_t memory_;
  const int64_t token_;
  const int warp_;
  const int lane_;
  int id_;
  uint32_t q_[kSteps][4];
  float o_[kTilesPerWarp][4];
  float top_[2];   // of heads lane / 4 and lane / 4 + 8
  float sum_[2];   // of this thread's weights
  float fade_[2];
};

}  // namespace dsa
