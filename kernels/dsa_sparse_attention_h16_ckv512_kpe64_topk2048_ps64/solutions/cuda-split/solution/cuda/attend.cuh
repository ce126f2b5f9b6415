// A block's share of a query token: some of its selected tokens, for all heads.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

constexpr int kSteps = (kLatent + kRope) / 16 / 2;  // of a warp's half of a product of keys

/// What a warp has: one half of the queries' columns, and columns 64 * warp and on of the output.
template <class S>
class Share {
 public:
  __device__ Share(const Problem& problem, uint32_t memory, int64_t token, int split)
      : problem_(problem),
        memory_(memory),
        token_(token),
        split_(split),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        team_(warp_ % kTeams),
        half_(warp_ / kTeams) {
    // Lane i knows the token of row i % 8 of stage i / 8 of this team.
    const int place = split * S::kRows + lane_ / 8 * kStageRows + team_ * 8 + lane_ % 8;
    id_ = -1;
    if (lane_ < S::kStages * 8) id_ = __ldg(problem.selected + token * kPlaces + place);
    if (threadIdx.x < S::kStages * kTeams) {
      barrier_init(memory_ + S::kBarriers + threadIdx.x * 8, 64);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void load_queries() {
    for (int i = threadIdx.x; i < kHeads * kLatentBytes / 16; i += kThreads) {
      const int head = i / (kLatentBytes / 16);
      const int byte = i % (kLatentBytes / 16) * 16;
      const auto* source = bytes_of(problem_.q_nope) + (token_ * kHeads + head) * kLatentBytes;
      copy_async(memory_ + S::kQueries + head * kPitch + byte, source + byte, true);
    }
    if (threadIdx.x < kHeads * kRopeBytes / 16) {
      const int head = threadIdx.x / (kRopeBytes / 16);
      const int byte = threadIdx.x % (kRopeBytes / 16) * 16;
      const auto* source = bytes_of(problem_.q_pe) + (token_ * kHeads + head) * kRopeBytes;
      copy_async(memory_ + S::kQueries + head * kPitch + kLatentBytes + byte, source + byte, true);
    }
    copy_async_commit();
  }

  /// Half of the team's 8 rows of a stage; rows that nothing is selected for become zeros.
  __device__ __forceinline__ void load_rows(int stage) {
    const uint32_t target = row_address(stage, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = half_ * 4 + i;
      const int id = __shfl_sync(kAllLanes, id_, stage * 8 + row);
      const auto* source = bytes_of(problem_.ckv) + int64_t{max(id, 0)} * kLatentBytes;
#pragma unroll
      for (int byte = 0; byte < kLatentBytes; byte += 512) {
        copy_async(target + row * kPitch + byte + lane_ * 16, source + byte + lane_ * 16, id >= 0);
      }
    }
    const int row = half_ * 4 + lane_ / 8;
    const int id = __shfl_sync(kAllLanes, id_, stage * 8 + row);
    const auto* source = bytes_of(problem_.kpe) + int64_t{max(id, 0)} * kRopeBytes;
    const int byte = lane_ % 8 * 16;
    copy_async(target + row * kPitch + kLatentBytes + byte, source + byte, id >= 0);
    barrier_arrive_after_copies(barrier(stage));
  }

  __device__ __forceinline__ void hold_queries() {
    copy_async_wait_groups();
    __syncthreads();
    const uint32_t address = memory_ + S::kQueries + lane_ % 16 * kPitch + lane_ / 16 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_matrices(q_[step], address + (half_ * kSteps + step) * 32);
    }
  }

  /// Takes in a stage; ends with its weighted sum.
  __device__ __forceinline__ void add_stage(int stage) {
    barrier_wait(barrier(stage), 0);
    float logits[4];
    multiply_keys(stage, logits);
    if (half_ == 0) {
      publish(S::kTops, over_quad(fmaxf(logits[0], logits[1])),
              over_quad(fmaxf(logits[2], logits[3])));
    }
    __syncthreads();  // and the rows of all teams are there
    weigh(stage, logits);
    if (stage + 1 == S::kStages) publish_sums();
    __syncthreads();
    if (stage + 1 == S::kStages) send_logs();
    add_values(stage);
  }

  /// Writes this block's averages where the blocks that merge them look for them.
  __device__ __forceinline__ void send_parts() {
    float norm[2];
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const float sum = sum_of(lane_ / 4 + below * 8);
      norm[below] = sum > 0.0f ? 1.0f / sum : 0.0f;
    }
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      const int64_t number = token_ * kTiles + warp_ * kTilesPerWarp + tile;
      const float(&o)[4] = o_[tile];
      store_global(problem_.parts + (number * S::kSplits + split_) * 32 + lane_,
                   make_uint2(pack_bf16(o[0] * norm[0], o[1] * norm[0]),
                              pack_bf16(o[2] * norm[1], o[3] * norm[1])));
    }
  }

 private:
  static __device__ const char* bytes_of(const __nv_bfloat16* data) {
    return reinterpret_cast<const char*>(data);
  }

  __device__ uint32_t row_address(int stage, int row) const {
    return memory_ + S::kKeys + (stage * kStageRows + team_ * 8 + row) * kPitch;
  }

  __device__ uint32_t barrier(int stage) const {
    return memory_ + S::kBarriers + (stage * kTeams + team_) * 8;
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
    float c[4][4] = {};  // sums that do not wait for each other
    const uint32_t address =
        row_address(stage, lane_ % 8) + half_ * kSteps * 32 + lane_ / 8 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      uint32_t keys[4];
      load_matrices(keys, address + step * 32);
      mma_bf16(c[step % 4], q_[step], keys[0], keys[1]);
      mma_bf16(c[step % 4 + 1], q_[step + 1], keys[2], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[0][i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
    const uint32_t halves = memory_ + S::kHalves + team_ * 512 + lane_ * 16;
    if (half_ == 1) {
      store_shared(halves, make_float4(c[0][0], c[0][1], c[0][2], c[0][3]));
      warps_arrive(1 + team_, 64);
      return;
    }
    warps_meet(1 + team_, 64);
    const float4 other = load_shared(halves);
    const float sums[4] = {c[0][0] + other.x, c[0][1] + other.y, c[0][2] + other.z,
                           c[0][3] + other.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int id = __shfl_sync(kAllLanes, id_, stage * 8 + lane_ % 4 * 2 + i % 2);
      logits[i] = id >= 0 ? sums[i] * problem_.factor : -INFINITY;
    }
  }

  /// Weights relative to the largest logit so far, and what that does to earlier sums.
  __device__ __forceinline__ void weigh(int stage, const float (&logits)[4]) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int head = lane_ / 4 + below * 8;
      const float4 tops = load_shared(memory_ + S::kTops + head * kTeams * 4);
      float top = fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w));
      if (stage > 0) top = fmaxf(top, top_[below]);
      const float shift = top == -INFINITY ? 0.0f : top;  // no token so far
      if (stage > 0) fade_[below] = exp2_short(top_[below] - shift);
      top_[below] = top;
      if (half_ == 0) {
        const float low = exp2_short(logits[below * 2] - shift);
        const float high = exp2_short(logits[below * 2 + 1] - shift);
        store_shared_word(
            memory_ + S::kWeights + head * kWeightPitch + team_ * 16 + lane_ % 4 * 4,
            pack_bf16(low, high));
        sum_[below] = stage > 0 ? sum_[below] * fade_[below] + (low + high) : low + high;
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
    if (threadIdx.x >= S::kSplits * kHeads / 4) return;
    const int head = threadIdx.x % (kHeads / 4) * 4;
    const int64_t reader = token_ * S::kSplits + threadIdx.x / (kHeads / 4);
    float logs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float top = load_shared_float(memory_ + S::kTop + (head + i) * 4);
      logs[i] = top + log2f(sum_of(head + i));  // minus infinity without a token
    }
    store_global(problem_.logs + (reader * S::kSplits + split_) * kHeads + head,
                 make_float4(logs[0], logs[1], logs[2], logs[3]));
  }

  __device__ __forceinline__ void add_values(int stage) {
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] = stage > 0 ? o_[tile][i] * fade_[i / 2] : 0.0f;
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
  const int64_t token_;
  const int split_;
  const int warp_;
  const int lane_;
  const int team_;
  const int half_;
  int id_;
  uint32_t q_[kSteps][4];
  float o_[kTilesPerWarp][4];
  float top_[2];   // of heads lane / 4 and lane / 4 + 8
  float sum_[2];   // of this thread's weights
  float fade_[2];  // what becomes of earlier sums
};

}  // namespace dsa
