// The value side: the recurrence over chunks for 16 rows of the state, in the registers of a warp.
//
// Everything is kept transposed, rows of V against columns of K or tokens. Then the accumulators
// of one product are, rounded to bfloat16, the first operand of the next, in the same lanes:
//     P = S K^T                         (16 x tokens)
//     U = (V - P diag(since)) X^T       X from the key side
//     S <- total S + (U diag(left)) K
// Nothing is exchanged between value warps. The output is left to a read warp (read_side.cuh).
#pragma once

#include "problem.cuh"

namespace gdn {

/// One value warp.
template <int ValueWarpsT, int KeyWarpsT>
class ValueSide {
  using SharedT = Shared<ValueWarpsT, KeyWarpsT>;
  using StageT = Stage<ValueWarpsT>;
  /// Whether operands are fetched before they are due: with one value warp to a scheduler and
  /// registers enough, nothing else hides the time that takes.
  static constexpr bool kAhead = ValueWarpsT <= KOPT_AHEAD;

 public:
  __device__ __forceinline__ ValueSide(const Params& p, SharedT& shared, int warp)
      : p_(p), shared_(shared), warp_(warp), lane_(threadIdx.x % 32) {}

  /// Starts the loads of the state, or sets it to zero.
  __device__ __forceinline__ void load(const Item& item) {
    const float* source = p_.state + offset(item);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float2 pair = make_float2(0.0f, 0.0f);
        if (p_.state != nullptr) {
          pair = __ldg(reinterpret_cast<const float2*>(source + h * 8 * kWidth + n * 8));
        }
        s_[n][h * 2] = pair.x;
        s_[n][h * 2 + 1] = pair.y;
      }
    }
  }

  __device__ __forceinline__ void store(const Item& item) const {
    float* target = p_.new_state + offset(item);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(target + h * 8 * kWidth + n * 8) =
            make_float2(s_[n][h * 2], s_[n][h * 2 + 1]);
      }
    }
  }

  __device__ __forceinline__ void store_zeros(const Item& item) const {
    float* target = p_.new_state + offset(item);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(target + h * 8 * kWidth + n * 8) = make_float2(0.0f, 0.0f);
      }
    }
  }

  /// All chunks, of which there is at least one.
  __device__ __forceinline__ void run(const Item& item) {
    uint32_t keys[8][4];
    if constexpr (kAhead) {
      await(shared_.barriers[0].loaded, 0);
      load_keys(keys, 0);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < item.chunks; ++chunk) step(keys, chunk, chunk + 1 < item.chunks);
  }

 private:
  __device__ __forceinline__ size_t offset(const Item& item) const {
    const int row = item.first_row + warp_ * kRows + lane_ / 4;
    return ((size_t(item.sequence) * kHeads + item.head) * kWidth + row) * kWidth + lane_ % 4 * 2;
  }

  /// Keys as second operand of S K^T: columns 16 s to 16 s + 15, tokens 0 to 7 and 8 to 15.
  __device__ __forceinline__ void load_keys(uint32_t (&keys)[8][4], int chunk) const {
#pragma unroll
    for (int s = 0; s < 8; ++s) load_matrices(keys[s], keys_at(chunk) + s * 32);
  }

  __device__ __forceinline__ uint32_t keys_at(int chunk) const {
    return shared_address(shared_.stage[chunk % kStages].k) +
           (lane_ % 8 + lane_ / 16 * 8) * kPitch + lane_ / 8 % 2 * 16;
  }

  /// One chunk; `keys` are those of it, and of the one after it in the end.
  __device__ __forceinline__ void step(uint32_t (&keys)[8][4], int chunk, bool more) {
    const int index = chunk % kStages;
    const StageT& stage = shared_.stage[index];
    const StageBarriers& barriers = shared_.barriers[index];
    Handover& handover = shared_.handover[warp_][chunk % kHandovers];
    const HandoverBarriers& handed = shared_.handed[warp_][chunk % kHandovers];

    if constexpr (!kAhead) await(barriers.loaded, chunk / kStages);
    uint32_t values[4];
    load_transposed(values, shared_address(stage.v) +
                                (lane_ % 8 + lane_ / 16 * 8) * StageT::kValuePitch +
                                warp_ * (kRows * 2) + lane_ / 8 % 2 * 16);
    float along[2][2][4] = {};  // two sums each: half the length of the chain of products
    uint32_t old[8][4];
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      if constexpr (!kAhead) load_matrices(keys[s], keys_at(chunk) + s * 32);
      old[s][0] = pack_bf16(s_[s * 2][0], s_[s * 2][1]);
      old[s][1] = pack_bf16(s_[s * 2][2], s_[s * 2][3]);
      old[s][2] = pack_bf16(s_[s * 2 + 1][0], s_[s * 2 + 1][1]);
      old[s][3] = pack_bf16(s_[s * 2 + 1][2], s_[s * 2 + 1][3]);
      mma(along[s % 2][0], old[s], keys[s][0], keys[s][1]);
      mma(along[s % 2][1], old[s], keys[s][2], keys[s][3]);
    }
    // Rows of k by token, for the product over tokens.
    uint32_t rows[8][4];
    const uint32_t rows_at = shared_address(stage.k) + lane_ % 16 * kPitch + lane_ / 16 * 16;
    if constexpr (kAhead) {
#pragma unroll
      for (int s = 0; s < 8; ++s) load_transposed(rows[s], rows_at + s * 32);
    }

    if (chunk >= kHandovers) await(handed.used, chunk / kHandovers - 1);
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      handover.state[s][lane_] = make_uint4(old[s][0], old[s][1], old[s][2], old[s][3]);
    }
    announce(handed.state);

    await(barriers.solved, chunk / kStages);
    const int c = lane_ % 4 * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
    const float4 decays[2] = {*reinterpret_cast<const float4*>(&stage.decay[c]),
                              *reinterpret_cast<const float4*>(&stage.decay[c + 8])};
    const float total = stage.total;
    uint32_t solved[4];
    load_matrices(solved, shared_address(stage.solved) +
                              (lane_ % 8 + lane_ / 16 * 8) * kSolvedPitch + lane_ / 8 % 2 * 16);
    uint32_t wanted[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float p0 = along[0][n][h * 2] + along[1][n][h * 2];
        const float p1 = along[0][n][h * 2 + 1] + along[1][n][h * 2 + 1];
        const uint32_t v = values[n * 2 + h];
        wanted[n * 2 + h] = pack_bf16(fmaf(-decays[n].x, p0, low_bf16(v)),
                                      fmaf(-decays[n].z, p1, high_bf16(v)));
      }
    }
    float update[2][4] = {};
    mma(update[0], wanted, solved[0], solved[1]);
    mma(update[1], wanted, solved[2], solved[3]);
    if constexpr (kAhead) {
      if (more) await(shared_.barriers[(chunk + 1) % kStages].loaded, (chunk + 1) / kStages);
      load_keys(keys, chunk + 1);  // after the last chunk they are of no use, and no harm
    }
    uint32_t written[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        written[n * 2 + h] =
            pack_bf16(update[n][h * 2] * decays[n].y, update[n][h * 2 + 1] * decays[n].w);
      }
    }
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      if constexpr (!kAhead) load_transposed(rows[s], rows_at + s * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s_[s * 2][i] *= total;
        s_[s * 2 + 1][i] *= total;
      }
      mma(s_[s * 2], written, rows[s][0], rows[s][1]);
      mma(s_[s * 2 + 1], written, rows[s][2], rows[s][3]);
    }
    handover.update[lane_] =
        make_uint4(pack_bf16(update[0][0], update[0][1]), pack_bf16(update[0][2], update[0][3]),
                   pack_bf16(update[1][0], update[1][1]), pack_bf16(update[1][2], update[1][3]));
    __syncwarp();
    if (lane_ == 0) {
      barrier_arrive(shared_address(&handed.update));
      barrier_arrive(shared_address(&barriers.used));
    }
  }

  const Params& p_;
  SharedT& shared_;
  const int warp_;
  const int lane_;
  float s_[16][4];  // rows lane / 4 and + 8, columns 8 n + 2 (lane % 4) and + 1
};

}  // namespace gdn
