// A block's share of a query token: some of its selected tokens, for all heads.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

constexpr int kAllMeet = 1;    // barrier of the warps that compute
constexpr int kTeamMeets = 2;  // the first of those of the teams
constexpr int kSteps = (kLatent + kRope) / 16 / 2;  // of a warp's half of a product of keys

/// What a warp has: one half of the queries' columns, and columns 64 * warp and on of the output.
template <class S>
class Share {
 public:
  __device__ Share(const Problem& problem, uint32_t memory, int token, int split)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        team_(warp_ % kTeams),
        half_(warp_ / kTeams) {}

  __device__ __forceinline__ void begin() {
    const uint32_t address = memory_ + S::kQueries + lane_ % 16 * kPitch + lane_ / 16 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_matrices(q_[step], address + (half_ * kSteps + step) * 32);
    }
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] = 0.0f;
    }
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      top_[below] = -INFINITY;
      sum_[below] = 0.0f;
    }
  }

  /// Takes in a stage that is there.
  __device__ __forceinline__ void add_stage(int stage) {
    float logits[4];
    multiply_keys(stage, logits);
    if (half_ == 0) {
      publish(S::kTops, over_quad(fmaxf(logits[0], logits[1])),
              over_quad(fmaxf(logits[2], logits[3])));
    }
    warps_meet(kAllMeet, kThreads);
    weigh(logits);
    warps_meet(kAllMeet, kThreads);
    add_values(stage);
  }

  /// Writes this block's averages and log-sum-exps where the blocks that merge look for them. If
  /// not `real`, writes that they are absent, as they are.
  __device__ __forceinline__ void send(bool real) {
    publish_sums();
    warps_meet(kAllMeet, kThreads);
    send_logs(real);
    send_parts(real);
  }

 private:
  __device__ uint32_t row_address(int stage, int row) const {
    return memory_ + S::kKeys + (stage * kStageRows + team_ * 8 + row) * kPitch;
  }

  static __device__ __forceinline__ float over_quad(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  }

  /// One float of this team for each head: lane 4 * i has those of heads i and i + 8.
  __device__ __forceinline__ void publish(uint32_t where, float upper, float lower) {
    if (lane_ % 4 != 0) return;
    const uint32_t address = memory_ + where + (lane_ / 4 * kTeams + team_) * 4;
    store_shared_float(address, upper);
    store_shared_float(address + 8 * kTeams * 4, lower);
  }

  /// In the first half of a team: heads lane / 4 (0, 1) and 8 more (2, 3), rows 2 * (lane % 4) and
  /// the next.
  __device__ __forceinline__ void multiply_keys(int stage, float (&logits)[4]) {
    float c[3][4] = {};  // sums that do not wait for each other
    const uint32_t address =
        row_address(stage, lane_ % 8) + half_ * kSteps * 32 + lane_ / 8 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      uint32_t keys[4];
      load_matrices(keys, address + step * 32);
      mma_bf16(c[step % 3], q_[step], keys[0], keys[1]);
      mma_bf16(c[(step + 1) % 3], q_[step + 1], keys[2], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[0][i] += c[1][i] + c[2][i];
    const uint32_t halves = memory_ + S::kHalves + team_ * 512 + lane_ * 16;
    if (half_ == 1) {
      store_shared(halves, make_float4(c[0][0], c[0][1], c[0][2], c[0][3]));
      warps_arrive(kTeamMeets + team_, 64);
      return;
    }
    warps_meet(kTeamMeets + team_, 64);
    const float4 other = load_shared(halves);
    const float sums[4] = {c[0][0] + other.x, c[0][1] + other.y, c[0][2] + other.z,
                           c[0][3] + other.w};
    const uint32_t valid = load_shared_word(memory_ + S::kValid + stage * 4) >>
                           (team_ * 8 + lane_ % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      logits[i] = (valid >> i % 2 & 1) != 0 ? sums[i] * problem_.factor : -INFINITY;
    }
  }

  /// Weights relative to the largest logit so far, and what that does to earlier sums.
  __device__ __forceinline__ void weigh(const float (&logits)[4]) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int head = lane_ / 4 + below * 8;
      const float4 tops = load_shared(memory_ + S::kTops + head * kTeams * 4);
      const float top = fmaxf(fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)), top_[below]);
      const float shift = top == -INFINITY ? 0.0f : top;  // no token so far
      fade_[below] = exp2_short(top_[below] - shift);
      top_[below] = top;
      if (half_ == 0) {
        const float low = exp2_short(logits[below * 2] - shift);
        const float high = exp2_short(logits[below * 2 + 1] - shift);
        store_shared_word(
            memory_ + S::kWeights + head * kWeightPitch + team_ * 16 + lane_ % 4 * 4,
            pack_bf16(low, high));
        sum_[below] = sum_[below] * fade_[below] + (low + high);
      }
    }
  }

  /// The block's sums of weights by team, and what they are relative to.
  __device__ __forceinline__ void publish_sums() {
    if (half_ == 1) return;
    float sums[2];
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      float sum = sum_[below];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sums[below] = sum;
    }
    publish(S::kSums, sums[0], sums[1]);
    if (warp_ == 0 && lane_ % 4 == 0) {
      store_shared_float(memory_ + S::kTop + lane_ / 4 * 4, top_[0]);
      store_shared_float(memory_ + S::kTop + (lane_ / 4 + 8) * 4, top_[1]);
    }
  }

  __device__ __forceinline__ float sum_of(int head) const {
    const float4 sums = load_shared(memory_ + S::kSums + head * kTeams * 4);
    return (sums.x + sums.y) + (sums.z + sums.w);
  }

  /// Every block that merges gets a copy of this one's log-sum-exps.
  __device__ __forceinline__ void send_logs(bool real) {
    const int head = threadIdx.x % kHeads;
    const float top = load_shared_float(memory_ + S::kTop + head * 4);
    // Minus infinity without a token.
    const uint32_t log = __float_as_uint(top + log2_short(sum_of(head)));
    const int reader = token_ * S::kSplits + threadIdx.x / kHeads;
    uint32_t* const target = problem_.logs + (reader * S::kSplits + split_) * kHeads + head;
#pragma unroll
    for (int i = 0; i < S::kSplits; i += kThreads / kHeads) {
      store_global(target + i * S::kSplits * kHeads, real ? log : kAbsent, true);
    }
  }

  __device__ __forceinline__ void send_parts(bool real) {
    float norm[2];
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const float sum = sum_of(lane_ / 4 + below * 8);
      norm[below] = sum > 0.0f ? reciprocal(sum) : 0.0f;
    }
    const int first = token_ * kTiles + warp_ * kTilesPerWarp;
    uint2* const target = problem_.parts + (first * S::kSplits + split_) * 32 + lane_;
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      const float(&o)[4] = o_[tile];
      const uint32_t upper = pack_bf16(o[0] * norm[0], o[1] * norm[0]);
      const uint32_t lower = pack_bf16(o[2] * norm[1], o[3] * norm[1]);
      store_global(target + tile * S::kSplits * 32,
                   make_uint2(real ? upper : kAbsent, real ? lower : kAbsent), true);
    }
  }

  __device__ __forceinline__ void add_values(int stage) {
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] *= fade_[i / 2];
    }
    const uint32_t weights = memory_ + S::kWeights + lane_ % 16 * kWeightPitch + lane_ / 16 * 16;
    const uint32_t values = memory_ + S::kKeys + (stage * kStageRows + lane_ % 16) * kPitch +
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
  const int token_;
  const int split_;
  const int warp_;
  const int lane_;
  const int team_;
  const int half_;
  uint32_t q_[kSteps][4];
  float o_[kTilesPerWarp][4];
  float top_[2];   // of heads lane / 4 and lane / 4 + 8
  float sum_[2];   // of this thread's weights
  float fade_[2];  // what becomes of earlier sums
};

}  // namespace dsa
