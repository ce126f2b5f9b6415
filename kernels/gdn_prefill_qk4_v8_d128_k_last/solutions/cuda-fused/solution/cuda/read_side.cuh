// The read side: what queries read of the 16 rows of the state that a value warp owns.
//
//     O = (S Q^T) diag(since) scale + U M^T      M = tril(D q k^T) scale, from the key side
//
// S before the chunk and U come from the value warp. It is the longer half of the work on a chunk,
// and no chunk waits for it.
#pragma once

#include "problem.cuh"

namespace gdn {

/// One read warp.
template <int ValueWarpsT, int KeyWarpsT>
class ReadSide {
  using SharedT = Shared<ValueWarpsT, KeyWarpsT>;
  using StageT = Stage<ValueWarpsT>;

 public:
  __device__ __forceinline__ ReadSide(const Params& p, const Item& item, SharedT& shared, int warp)
      : p_(p), item_(item), shared_(shared), warp_(warp), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int chunk = 0; chunk < item_.chunks; ++chunk) step(chunk);
  }

 private:
  __device__ __forceinline__ void step(int chunk) {
    const int index = chunk % kStages;
    const StageT& stage = shared_.stage[index];
    const StageBarriers& barriers = shared_.barriers[index];
    const Handover& handover = shared_.handover[warp_][chunk % kHandovers];
    const HandoverBarriers& handed = shared_.handed[warp_][chunk % kHandovers];

    await(barriers.loaded, chunk / kStages);
    const uint32_t queries_at = shared_address(stage.q) +
                                (lane_ % 8 + lane_ / 16 * 8) * kPitch + lane_ / 8 % 2 * 16;
    uint32_t queries[8][4];
#pragma unroll
    for (int s = 0; s < 8; ++s) load_matrices(queries[s], queries_at + s * 32);
    await(handed.state, chunk / kHandovers);
    float read[2][4] = {};
    float odd[2][4] = {};
#pragma unroll
    for (int s = 0; s < 8; s += 2) {
      const uint4 even_state = handover.state[s][lane_];
      const uint4 odd_state = handover.state[s + 1][lane_];
      const uint32_t even_rows[4] = {even_state.x, even_state.y, even_state.z, even_state.w};
      const uint32_t odd_rows[4] = {odd_state.x, odd_state.y, odd_state.z, odd_state.w};
      mma(read[0], even_rows, queries[s][0], queries[s][1]);
      mma(read[1], even_rows, queries[s][2], queries[s][3]);
      mma(odd[0], odd_rows, queries[s + 1][0], queries[s + 1][1]);
      mma(odd[1], odd_rows, queries[s + 1][2], queries[s + 1][3]);
    }
    await(barriers.mixed, chunk / kStages);  // and with it the decays
    const uint4 mixed = stage.mixed[lane_];
    const int c = lane_ % 4 * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 decays = *reinterpret_cast<const float4*>(&stage.decay[c + n * 8]);
      const float since[2] = {decays.x * p_.scale, decays.z * p_.scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) read[n][i] = (read[n][i] + odd[n][i]) * since[i % 2];
    }
    await(handed.update, chunk / kHandovers);
    const uint4 update = handover.update[lane_];
    const uint32_t written[4] = {update.x, update.y, update.z, update.w};
    mma(read[0], written, mixed.x, mixed.y);
    mma(read[1], written, mixed.z, mixed.w);
    __syncwarp();
    if (lane_ == 0) {
      barrier_arrive(shared_address(&handed.used));
      barrier_arrive(shared_address(&barriers.used));
    }
    write(chunk, read);
  }

  /// Output of a chunk, by token.
  __device__ __forceinline__ void write(int chunk, const float (&read)[2][4]) const {
    const int column = item_.first_row + warp_ * kRows + lane_ % 4 * 2;
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

  const Params& p_;
  const Item& item_;
  SharedT& shared_;
  const int warp_;
  const int lane_;
};

}  // namespace gdn
