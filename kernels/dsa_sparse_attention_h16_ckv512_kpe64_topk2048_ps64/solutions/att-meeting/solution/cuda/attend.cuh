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
  __device__ Share(const Problem& problem, uint32_t memory, int token, int split,
                   unsigned thread)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        thread_(thread),
        warp_(static_cast<int>(thread / 32)),
        lane_(static_cast<int>(thread % 32)),
        team_(warp_ % kTeams),
        half_(warp_ / kTeams) {}

  /// Writes what is there already, that nothing is: so that whoever looks finds it in the L2.
  __device__ __forceinline__ void mark_absent() {
    uint32_t* const logs = own_logs();
#pragma unroll
    for (int i = 0; i < kReaders; ++i) store_global(logs + i * kNextReaders, kAbsent);
    uint2* const parts = own_parts();
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      store_global(parts + tile * kNextTile, make_uint2(kAbsent, kAbsent));
    }
  }

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

  /// Takes in a stage that is there. After the last one, the block's sums are in shared memory.
  __device__ __forceinline__ void add_stage(int stage) {
    float logits[4];
    multiply_keys(stage, logits);
    if (half_ == 0) {
      publish(S::kTops, over_quad(fmaxf(logits[0], logits[1])),
              over_quad(fmaxf(logits[2], logits[3])));
    }
    warps_meet(kAllMeet, kThreads);
    weigh(logits);
    if (stage + 1 == S::kStages) publish_sums();
    warps_meet(kAllMeet, kThreads);
    add_values(stage);
  }

  /// Writes this block's averages and log-sum-exps where the blocks that merge look for them.
  __device__ __forceinline__ void send() {
    send_logs();
    send_parts();
  }

 private:
  static constexpr int kReaders = S::kSplits / (kThreads / kHeads);  // of a thread's logs
  static constexpr int kNextReaders = kThreads / kHeads * S::kSplits * kHeads;
  static constexpr int kNextTile = S::kSplits * 32;

  /// Where this thread's 2 x 2 elements of the first tile of its warp go.
  __device__ uint2* own_parts() const {
    const unsigned thread = thread_number();
    const unsigned tile = token_ * kTiles + thread / 32 * kTilesPerWarp;
    return problem_.parts + (tile * S::kSplits + split_) * 32 + thread % 32;
  }

  /// Where the log-sum-exp of a head goes, for the first of the blocks that this thread sends it to.
  __device__ uint32_t* own_logs() const {
    const unsigned thread = thread_number();
    const unsigned reader = token_ * S::kSplits + thread / kHeads;
    uint2* const logs = problem_.logs + (reader * S::kSplits + split_) * 8 + thread % 8;
    return reinterpret_cast<uint32_t*>(logs) + thread % kHeads / 8;
  }

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
  __device__ __forceinline__ void send_logs() {
    const unsigned head = thread_ % kHeads;
    const float top = load_shared_float(memory_ + S::kTop + head * 4);
    // Minus infinity without a token.
    const uint32_t log = __float_as_uint(top + log2_short(sum_of(head)));
    uint32_t* const logs = own_logs();
#pragma unroll
    for (int i = 0; i < kReaders; ++i) store_global(logs + i * kNextReaders, log);
  }

  __device__ __forceinline__ void send_parts() {
    float norm[2];
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const float sum = sum_of(lane_ / 4 + below * 8);
      norm[below] = sum > 0.0f ? reciprocal(sum) : 0.0f;
    }
    uint2* const parts = own_parts();
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      const float(&o)[4] = o_[tile];
      store_global(parts + tile * kNextTile,
                   make_uint2(pack_bf16(o[0] * norm[0], o[1] * norm[0]),
                              pack_bf16(o[2] * norm[1], o[3] * norm[1])));
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
  const unsigned thread_;
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
