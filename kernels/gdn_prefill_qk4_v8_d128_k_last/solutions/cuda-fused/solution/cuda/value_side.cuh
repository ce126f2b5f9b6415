// The value side: the recurrence over chunks for 16 rows of the state, in the registers of a warp.
//
// Everything is kept transposed, rows of V against columns of K or tokens. Then the accumulators
// of one product are, rounded to bfloat16, the first operand of the next, in the same lanes:
//     P = S K^T,  R = S Q^T          (16 x tokens)
//     U = (V - P diag(since)) X^T    X from the key side
//     O = R diag(since) scale + U M^T
//     S <- total S + (U diag(left)) K
// Nothing is exchanged between warps.
#pragma once

#include "problem.cuh"

namespace gdn {

/// One value warp.
template <int ValueWarpsT, int KeyWarpsT>
class ValueSide {
  using SharedT = Shared<ValueWarpsT, KeyWarpsT>;
  using StageT = Stage<ValueWarpsT>;

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

  __device__ __forceinline__ void run(const Item& item) {
    int index = 0;
    uint32_t parity = 0;
    for (int chunk = 0; chunk < item.chunks; ++chunk) {
      step(item, chunk, shared_.stage[index], shared_.barriers[index], parity);
      if (++index == SharedT::kStages) {
        index = 0;
        parity ^= 1;
      }
    }
  }

 private:
  __device__ __forceinline__ size_t offset(const Item& item) const {
    const int row = item.first_row + warp_ * kRows + lane_ / 4;
    return ((size_t(item.sequence) * kHeads + item.head) * kWidth + row) * kWidth +
           (lane_ % 4) * 2;
  }

  /// Columns 16 s to 16 s + 15 of q or k, as second operand for tokens 0 to 7 and 8 to 15.
  __device__ __forceinline__ void load_columns(uint32_t (&m)[4], const uint8_t* tile,
                                               int s) const {
    const int row = lane_ % 8 + lane_ / 16 * 8;
    load_matrices(m, shared_address(tile) + row * kPitch + lane_ / 8 % 2 * 16 + s * 32);
  }

  __device__ __forceinline__ void step(const Item& item, int chunk, const StageT& stage,
                                       Barriers& barriers, uint32_t parity) {
    uint32_t old[8][4];
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      old[s][0] = pack_bf16(s_[s * 2][0], s_[s * 2][1]);
      old[s][1] = pack_bf16(s_[s * 2][2], s_[s * 2][3]);
      old[s][2] = pack_bf16(s_[s * 2 + 1][0], s_[s * 2 + 1][1]);
      old[s][3] = pack_bf16(s_[s * 2 + 1][2], s_[s * 2 + 1][3]);
    }
    barrier_wait(shared_address(&barriers.loaded), parity);

    float along[2][2][4] = {};  // two sums each: half the length of the chain of mma
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      uint32_t keys[4];
      load_columns(keys, stage.k, s);
      mma(along[s % 2][0], old[s], keys[0], keys[1]);
      mma(along[s % 2][1], old[s], keys[2], keys[3]);
    }
    const int c = (lane_ % 4) * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
    const float4 decays[2] = {*reinterpret_cast<const float4*>(&stage.decay[c]),
                              *reinterpret_cast<const float4*>(&stage.decay[c + 8])};
    uint32_t values[4];
    load_transposed(values, shared_address(stage.v) +
                                (lane_ % 8 + (lane_ / 16) * 8) * StageT::kValuePitch +
                                warp_ * (kRows * 2) + ((lane_ / 8) % 2) * 16);
    const float total = stage.total;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s_[n][i] *= total;
    }
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

    barrier_wait(shared_address(&barriers.solved), parity);
    uint32_t solved[4];
    load_matrices(solved, shared_address(stage.solved) +
                              (lane_ % 8 + (lane_ / 16) * 8) * StageT::kSolvedPitch +
                              ((lane_ / 8) % 2) * 16);
    float update[2][4] = {};
    mma(update[0], wanted, solved[0], solved[1]);
    mma(update[1], wanted, solved[2], solved[3]);
    uint32_t written[4];
    uint32_t mixing[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float u0 = update[n][h * 2];
        const float u1 = update[n][h * 2 + 1];
        written[n * 2 + h] = pack_bf16(u0 * decays[n].y, u1 * decays[n].w);
        mixing[n * 2 + h] = pack_bf16(u0, u1);
      }
    }
    // Rows of k by token, for the product over tokens.
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      uint32_t keys[4];
      load_transposed(keys, shared_address(stage.k) + lane_ % 16 * kPitch + lane_ / 16 * 16 + s * 32);
      mma(s_[s * 2], written, keys[0], keys[1]);
      mma(s_[s * 2 + 1], written, keys[2], keys[3]);
    }

    float read[2][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      uint32_t queries[4];
      load_columns(queries, stage.q, s);
      mma(read[0], old[s], queries[0], queries[1]);
      mma(read[1], old[s], queries[2], queries[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float since[2] = {decays[n].x * p_.scale, decays[n].z * p_.scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) read[n][i] *= since[i % 2];
    }
    barrier_wait(shared_address(&barriers.mixed), parity);
    const uint4 mixed = *reinterpret_cast<const uint4*>(stage.mixed[lane_]);
    mma(read[0], mixing, mixed.x, mixed.y);
    mma(read[1], mixing, mixed.z, mixed.w);
    __syncwarp();
    if (lane_ == 0) barrier_arrive(shared_address(&barriers.used));
    write(item, chunk, read);
  }

  /// Output of a chunk, by token.
  __device__ __forceinline__ void write(const Item& item, int chunk,
                                        const float (&read)[2][4]) const {
    const int column = item.first_row + warp_ * kRows + (lane_ % 4) * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t low = transpose(pack_bf16(read[n][0], read[n][1]));
      const uint32_t high = transpose(pack_bf16(read[n][2], read[n][3]));
      const int token = chunk * kChunk + n * 8 + lane_ / 4;
      if (token < item.length) {
        __nv_bfloat16* target =
            p_.output + (size_t(item.begin + token) * kHeads + item.head) * kWidth + column;
        *reinterpret_cast<uint32_t*>(target) = low;
        *reinterpret_cast<uint32_t*>(target + 8) = high;
      }
    }
  }

  const Params& p_;
  SharedT& shared_;
  const int warp_;
  const int lane_;
  float s_[16][4];  // rows lane / 4 and + 8, columns 8 n + 2 (lane % 4) and + 1
};

}  // namespace gdn
