// The read side: what queries read of the state, for 16 rows of it.
//
//     O = (S Q^T) diag(since) scale + U M^T      M = tril(D q k^T) scale, from the key side
//
// S before the chunk and U come from the value warps. No chunk waits for this one.
#pragma once

#include "stage.cuh"

namespace gdn::fused {

/// One read warp.
template <class ShapeT>
class ReadSide {
  static constexpr int kTurns = ShapeT::kReadWarps;

 public:
  __device__ __forceinline__ ReadSide(const Problem& p, const Item& item, Shared<ShapeT>& shared,
                                      int warp)
      : p_(p), item_(item), shared_(shared), first_(warp % kTurns), tile_(warp / kTurns),
        lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int chunk = first_; chunk < item_.chunks; chunk += kTurns) step(chunk);
  }

 private:
  __device__ __forceinline__ void step(int chunk) {
    const int index = chunk % ShapeT::kStages;
    const Stage<ShapeT>& stage = shared_.stage[index];
    const StageBarriers& barriers = shared_.barriers[index];
    const Handover& handover = shared_.handover[tile_][chunk % ShapeT::kHandovers];
    const HandoverBarriers& handed = shared_.handed[tile_][chunk % ShapeT::kHandovers];
    const int handed_use = chunk / ShapeT::kHandovers;

    await(barriers.loaded, chunk / ShapeT::kStages);
    const bool has_state = announced(handed.state, handed_use);
    const uint32_t queries_at = shared_address(stage.q) +
                                (lane_ % 8 + lane_ / 16 * 8) * kPitch + lane_ / 8 % 2 * 16;
    uint32_t queries[8][4];
#pragma unroll
    for (int s = 0; s < 8; ++s) load_matrices(queries[s], queries_at + s * 32);
    await(has_state, handed.state, handed_use);
    const bool has_mixed = announced(barriers.mixed, chunk / ShapeT::kStages);
    float read[2][4] = {};
    float odd[2][4] = {};
    along_queries(read, odd, handover.state, queries);
    if (handover.sharp) along_queries(read, odd, handover.rest, queries);
    await(has_mixed, barriers.mixed, chunk / ShapeT::kStages);  // and with it the decays
    const bool has_update = announced(handed.update, handed_use);
    const uint4 mixed = stage.mixed[lane_];
    const int c = lane_ % 4 * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 decays = *reinterpret_cast<const float4*>(&stage.decay[c + n * 8]);
      const float since[2] = {decays.x * p_.scale, decays.z * p_.scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) read[n][i] = (read[n][i] + odd[n][i]) * since[i % 2];
    }
    await(has_update, handed.update, handed_use);
    const uint4 update = handover.update[lane_];
    const uint32_t written[4] = {update.x, update.y, update.z, update.w};
    mma_in_order(read[0], written, mixed.x, mixed.y);
    mma_in_order(read[1], written, mixed.z, mixed.w);
    __syncwarp();
    if (lane_ == 0) {
      barrier_arrive(shared_address(&handed.used));
      barrier_arrive(shared_address(&barriers.used));
    }
    write(chunk, read);
  }

  /// Adds S Q^T in two sums, of every other piece of columns each.
  __device__ __forceinline__ void along_queries(float (&even)[2][4], float (&odd)[2][4],
                                                const uint4 (&state)[kWidth / 16][32],
                                                const uint32_t (&queries)[8][4]) const {
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      float(&sum)[2][4] = s % 2 == 0 ? even : odd;
      const uint4 packed = state[s][lane_];
      const uint32_t rows[4] = {packed.x, packed.y, packed.z, packed.w};
      mma_in_order(sum[0], rows, queries[s][0], queries[s][1]);
      mma_in_order(sum[1], rows, queries[s][2], queries[s][3]);
    }
  }

  /// Output of a chunk, by token.
  __device__ __forceinline__ void write(int chunk, const float (&read)[2][4]) const {
    const int column = item_.first_row + tile_ * kRows + lane_ % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t low = transpose(pack_bf16(read[n][0], read[n][1]));
      const uint32_t high = transpose(pack_bf16(read[n][2], read[n][3]));
      const int token = chunk * kChunk + n * 8 + lane_ / 4;
      if (token < item_.length) {
        __nv_bfloat16* target =
            p_.output + (size_t(item_.begin + token) * kHeads + item_.head) * kWidth + column;
        *reinterpret_cast<uint32_t*>(target) = low;
        *reinterpret_cast<uint32_t*>(target + 8) = high;
      }
    }
  }

  const Problem& p_;
  const Item& item_;
  Shared<ShapeT>& shared_;
  const int first_;  // chunk
  const int tile_;
  const int lane_;
};

}  // namespace gdn::fused
