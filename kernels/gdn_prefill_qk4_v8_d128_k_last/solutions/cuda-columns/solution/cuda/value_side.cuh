// The value side: the recurrence over chunks, with the state in the registers of four warps.
//
// Each warp has a quarter of the columns (of K), for one or four tiles of 16 rows (of V).
// Everything is kept transposed, rows of V against columns of K or tokens. Then the accumulators
// of one product are, rounded to bfloat16, the first operand of the next, in the same lanes:
//     P = S K^T                         (16 x tokens; the warps add up their parts)
//     U = (V - P diag(since)) X^T       X from the key side
//     S <- total S + (U diag(left)) K
// With one tile every warp makes U for itself; with four, each makes that of a tile. The output is
// left to read warps (read_side.cuh).
#pragma once

#include "problem.cuh"

namespace gdn {

/// One value warp.
template <class ShapeT>
class ValueSide {
  static constexpr int kTiles = ShapeT::kTiles;

 public:
  __device__ __forceinline__ ValueSide(const Params& p, Shared<ShapeT>& shared, const Item& item,
                                       int warp)
      : p_(p), shared_(shared), warp_(warp), lane_(threadIdx.x % 32) {
    const unsigned row = (item.sequence * kHeads + item.head) * kWidth + item.first_row + lane_ / 4;
    offset_ = size_t(row) * kWidth + (warp * kColumns + lane_ % 4 * 2);
  }

  /// Starts the loads of the state, or sets it to zero.
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < kTiles * 8; ++i) {
      float2 pair = make_float2(0.0f, 0.0f);
      if (p_.state != nullptr) {
        pair = __ldg(reinterpret_cast<const float2*>(p_.state + offset_ + place(i)));
      }
      s_[i / 8][i / 2 % 4][i % 2 * 2] = pair.x;
      s_[i / 8][i / 2 % 4][i % 2 * 2 + 1] = pair.y;
    }
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int i = 0; i < kTiles * 8; ++i) {
      *reinterpret_cast<float2*>(p_.new_state + offset_ + place(i)) = make_float2(
          s_[i / 8][i / 2 % 4][i % 2 * 2], s_[i / 8][i / 2 % 4][i % 2 * 2 + 1]);
    }
  }

  __device__ __forceinline__ void store_zeros() const {
#pragma unroll
    for (int i = 0; i < kTiles * 8; ++i) {
      *reinterpret_cast<float2*>(p_.new_state + offset_ + place(i)) = make_float2(0.0f, 0.0f);
    }
  }

  /// All chunks, of which there is at least one.
  __device__ __forceinline__ void run(int chunks) {
    uint32_t keys[kPieces][4];
    await(shared_.barriers[0].loaded, 0);
    load_keys(keys, 0);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) step(keys, chunk, chunk + 1 < chunks);
  }

 private:
  /// Of pair number i of a lane, from its first: tile, eight columns, eight rows.
  __device__ static constexpr int place(int i) {
    return i / 8 * (kRows * kWidth) + i / 2 % 4 * 8 + i % 2 * (8 * kWidth);
  }

  /// Keys as second operand of S K^T: columns 16 s to 16 s + 15, tokens 0 to 7 and 8 to 15.
  __device__ __forceinline__ void load_keys(uint32_t (&keys)[kPieces][4], int chunk) const {
    const uint32_t at = shared_address(shared_.stage[chunk % kStages].k) +
                        (lane_ % 8 + lane_ / 16 * 8) * kPitch + lane_ / 8 % 2 * 16 +
                        warp_ * (kColumns * 2);
#pragma unroll
    for (int s = 0; s < kPieces; ++s) load_matrices(keys[s], at + s * 32);
  }

  /// One chunk; `keys` are those of it, and of the one after it in the end.
  __device__ __forceinline__ void step(uint32_t (&keys)[kPieces][4], int chunk, bool more) {
    const int index = chunk % kStages;
    const Stage<ShapeT>& stage = shared_.stage[index];
    const StageBarriers& barriers = shared_.barriers[index];
    Exchange<ShapeT>& exchange = shared_.exchange[chunk % 2];

    uint32_t old[kTiles][kPieces][4];
    float along[kTiles][2][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) along_keys(along[t], old[t], keys, t);
    const int tile = kTiles == 1 ? 0 : warp_;  // whose U this warp makes
    float sum[2][4];
    add_up(sum, along, exchange, tile);

    uint32_t rows[kPieces][4];  // of k by token, for the product over tokens
    const uint32_t rows_at = shared_address(stage.k) + lane_ % 16 * kPitch + lane_ / 16 * 16 +
                             warp_ * (kColumns * 2);
#pragma unroll
    for (int s = 0; s < kPieces; ++s) load_transposed(rows[s], rows_at + s * 32);
    uint32_t values[4];
    load_transposed(values, shared_address(stage.v) +
                                (lane_ % 8 + lane_ / 16 * 8) * ShapeT::kValuePitch +
                                tile * (kRows * 2) + lane_ / 8 % 2 * 16);
    await(barriers.solved, chunk / kStages);
    const float total = stage.total;
    uint32_t written[kTiles][4];
    uint4 update;
    make_update(written[0], update, sum, values, stage);
    hand_over(old, chunk);
    if (more) await(shared_.barriers[(chunk + 1) % kStages].loaded, (chunk + 1) / kStages);
    load_keys(keys, chunk + 1);  // after the last chunk they are of no use, and no harm
    if constexpr (kTiles > 1) {
      exchange.written[tile][lane_] =
          make_uint4(written[0][0], written[0][1], written[0][2], written[0][3]);
      sync_value_warps();
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint4 packed = exchange.written[t][lane_];
        written[t][0] = packed.x;
        written[t][1] = packed.y;
        written[t][2] = packed.z;
        written[t][3] = packed.w;
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s_[t][n][i] *= total;
        mma(s_[t][n], written[t], rows[n / 2][n % 2 * 2], rows[n / 2][n % 2 * 2 + 1]);
      }
    }
    if (kTiles > 1 || warp_ == 0) {
      const int number = chunk % ShapeT::kHandovers;
      shared_.handover[number].update[tile][lane_] = update;
      announce(shared_.handed[number].update);
    }
    announce(barriers.used);
  }

  /// This warp's part of S K^T for a tile; `old` becomes the tile's state in bfloat16.
  __device__ __forceinline__ void along_keys(float (&along)[2][4], uint32_t (&old)[kPieces][4],
                                             const uint32_t (&keys)[kPieces][4], int t) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) along[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int s = 0; s < kPieces; ++s) {
      const float(&left)[4] = s_[t][s * 2];
      const float(&right)[4] = s_[t][s * 2 + 1];
      old[s][0] = pack_bf16(left[0], left[1]);
      old[s][1] = pack_bf16(left[2], left[3]);
      old[s][2] = pack_bf16(right[0], right[1]);
      old[s][3] = pack_bf16(right[2], right[3]);
      mma(along[0], old[s], keys[s][0], keys[s][1]);
      mma(along[1], old[s], keys[s][2], keys[s][3]);
    }
  }

  /// The four warps' parts of one tile. The order gives the same bits in every warp.
  __device__ __forceinline__ void add_up(float (&sum)[2][4], const float (&along)[kTiles][2][4],
                                         Exchange<ShapeT>& exchange, int tile) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        exchange.partial[t][warp_][n][lane_] =
            make_float4(along[t][n][0], along[t][n][1], along[t][n][2], along[t][n][3]);
      }
    }
    sync_value_warps();
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 a = exchange.partial[tile][warp_][n][lane_];
      const float4 b = exchange.partial[tile][warp_ ^ 1][n][lane_];
      const float4 c = exchange.partial[tile][warp_ ^ 2][n][lane_];
      const float4 d = exchange.partial[tile][warp_ ^ 3][n][lane_];
      sum[n][0] = (a.x + b.x) + (c.x + d.x);
      sum[n][1] = (a.y + b.y) + (c.y + d.y);
      sum[n][2] = (a.z + b.z) + (c.z + d.z);
      sum[n][3] = (a.w + b.w) + (c.w + d.w);
    }
  }

  /// U of a tile, for the read warp, and U diag(left), for the state; both as first operands.
  __device__ __forceinline__ void make_update(uint32_t (&written)[4], uint4& update,
                                              const float (&sum)[2][4],
                                              const uint32_t (&values)[4],
                                              const Stage<ShapeT>& stage) const {
    const int c = lane_ % 4 * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
    const float4 decays[2] = {*reinterpret_cast<const float4*>(&stage.decay[c]),
                              *reinterpret_cast<const float4*>(&stage.decay[c + 8])};
    uint32_t solved[4];
    load_matrices(solved, shared_address(stage.solved) +
                              (lane_ % 8 + lane_ / 16 * 8) * kSolvedPitch + lane_ / 8 % 2 * 16);
    uint32_t wanted[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t v = values[n * 2 + h];
        wanted[n * 2 + h] = pack_bf16(fmaf(-decays[n].x, sum[n][h * 2], low_bf16(v)),
                                      fmaf(-decays[n].z, sum[n][h * 2 + 1], high_bf16(v)));
      }
    }
    float u[2][4] = {};
    mma(u[0], wanted, solved[0], solved[1]);
    mma(u[1], wanted, solved[2], solved[3]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        written[n * 2 + h] = pack_bf16(u[n][h * 2] * decays[n].y, u[n][h * 2 + 1] * decays[n].w);
      }
    }
    update = make_uint4(pack_bf16(u[0][0], u[0][1]), pack_bf16(u[0][2], u[0][3]),
                        pack_bf16(u[1][0], u[1][1]), pack_bf16(u[1][2], u[1][3]));
  }

  /// The state before a chunk, for the read warps.
  __device__ __forceinline__ void hand_over(const uint32_t (&old)[kTiles][kPieces][4],
                                            int chunk) const {
    const int number = chunk % ShapeT::kHandovers;
    const HandoverBarriers& handed = shared_.handed[number];
    if (chunk >= ShapeT::kHandovers) await(handed.used, chunk / ShapeT::kHandovers - 1);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int s = 0; s < kPieces; ++s) {
        shared_.handover[number].state[t][warp_ * kPieces + s][lane_] =
            make_uint4(old[t][s][0], old[t][s][1], old[t][s][2], old[t][s][3]);
      }
    }
    announce(handed.state);
  }

  const Params& p_;
  Shared<ShapeT>& shared_;
  const int warp_;
  const int lane_;
  size_t offset_;            // of this lane's first element of the state
  float s_[kTiles][4][4];    // rows lane / 4 and + 8, columns 8 n + 2 (lane % 4) and + 1
};

}  // namespace gdn
