// The value side: the recurrence over chunks, with the state in registers.
//
// A warp has 16 rows (of V) and all columns (of K) of a state, or a part of the columns. Everything
// is kept transposed, rows of V against columns of K or tokens. Then the accumulators of one
// product are, rounded to bfloat16, the first operand of the next, in the same lanes:
//     P = S K^T                         (16 x tokens; the parts of a tile add up theirs)
//     U = (V - P diag(since)) X^T       X from the key side; in every part
//     S <- total S + (U diag(left)) K
// The output is left to read warps (read_side.cuh).
#pragma once

#include "stage.cuh"

namespace gdn::fused {

/// One value warp.
template <class ShapeT>
class ValueSide {
  static constexpr int kParts = ShapeT::kParts;
  static constexpr int kPieces = ShapeT::kPieces;
  static constexpr int kPairs = kPieces * 4;  // of columns, that a lane has

 public:
  __device__ __forceinline__ ValueSide(const Problem& p, Shared<ShapeT>& shared, const Item& item,
                                       int warp)
      : p_(p), shared_(shared), tile_(warp / kParts), part_(warp % kParts),
        lane_(threadIdx.x % 32) {
    const unsigned row = (item.sequence * kHeads + item.head) * kWidth + item.first_row +
                         tile_ * kRows + lane_ / 4;
    offset_ = size_t(row) * kWidth + (part_ * ShapeT::kColumns + lane_ % 4 * 2);
  }

  /// Starts the loads of the state, or sets it to zero.
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float2 pair = make_float2(0.0f, 0.0f);
      if (p_.state != nullptr) {
        pair = __ldg(reinterpret_cast<const float2*>(p_.state + offset_ + place(i)));
      }
      s_[i / 2][i % 2 * 2] = pair.x;
      s_[i / 2][i % 2 * 2 + 1] = pair.y;
    }
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      *reinterpret_cast<float2*>(p_.new_state + offset_ + place(i)) =
          make_float2(s_[i / 2][i % 2 * 2], s_[i / 2][i % 2 * 2 + 1]);
    }
  }

  __device__ __forceinline__ void store_zeros() const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      *reinterpret_cast<float2*>(p_.new_state + offset_ + place(i)) = make_float2(0.0f, 0.0f);
    }
  }

  /// All chunks, of which there is at least one.
  __device__ __forceinline__ void run(int chunks) {
    uint32_t keys[kPieces][4];
    if constexpr (ShapeT::kAhead) {
      await(shared_.barriers[0].loaded, 0);
      load_keys(keys, 0);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) step(keys, chunk, chunk + 1 < chunks);
  }

 private:
  /// Of a lane's pair number i, from its first: eight columns, eight rows.
  __device__ static constexpr int place(int i) { return i / 2 * 8 + i % 2 * (8 * kWidth); }

  /// Keys as second operand of S K^T: columns 16 s to 16 s + 15, tokens 0 to 7 and 8 to 15.
  __device__ __forceinline__ void load_keys(uint32_t (&keys)[kPieces][4], int chunk) const {
#pragma unroll
    for (int s = 0; s < kPieces; ++s) load_matrices(keys[s], keys_at(chunk) + s * 32);
  }

  __device__ __forceinline__ uint32_t keys_at(int chunk) const {
    return shared_address(shared_.stage[chunk % ShapeT::kStages].k) +
           (lane_ % 8 + lane_ / 16 * 8) * kPitch + lane_ / 8 % 2 * 16 +
           part_ * (ShapeT::kColumns * 2);
  }

  /// One chunk; `keys` are those of it, and of the one after it in the end.
  __device__ __forceinline__ void step(uint32_t (&keys)[kPieces][4], int chunk, bool more) {
    const int index = chunk % ShapeT::kStages;
    const Stage<ShapeT>& stage = shared_.stage[index];
    const StageBarriers& barriers = shared_.barriers[index];

    if constexpr (!ShapeT::kAhead) await(barriers.loaded, chunk / ShapeT::kStages);
    uint32_t values[4];
    const uint32_t values_at = shared_address(stage.v) +
                               (lane_ % 8 + lane_ / 16 * 8) * ShapeT::kValuePitch +
                               tile_ * (kRows * 2) + lane_ / 8 % 2 * 16;
    if constexpr (kParts == 1) load_matrices_transposed(values, values_at);
    uint32_t old[kPieces][4];
    float sum[2][4];
    along_keys(sum, old, keys, chunk);
    // What is waited for below, asked while the products are on their way.
    const int number = chunk % ShapeT::kHandovers;
    const HandoverBarriers& handed = shared_.handed[tile_][number];
    const int last_use = chunk / ShapeT::kHandovers - 1;
    const int next = (chunk + 1) % ShapeT::kStages;
    const int next_use = (chunk + 1) / ShapeT::kStages;
    const bool solved = announced(barriers.solved, chunk / ShapeT::kStages);
    const bool free = last_use < 0 || announced(handed.used, last_use);
    const bool loaded = !more || announced(shared_.barriers[next].loaded, next_use);
    if constexpr (kParts > 1) add_up(sum, chunk);

    uint32_t rows[kPieces][4];  // of k by token, for the product over tokens
    const uint32_t rows_at = shared_address(stage.k) + lane_ % 16 * kPitch + lane_ / 16 * 16 +
                             part_ * (ShapeT::kColumns * 2);
    if constexpr (ShapeT::kAhead) {
#pragma unroll
      for (int s = 0; s < kPieces; ++s) load_matrices_transposed(rows[s], rows_at + s * 32);
    }
    if constexpr (kParts > 1) load_matrices_transposed(values, values_at);
    await(free, handed.used, last_use);
    hand_over(old, number);
    await(solved, barriers.solved, chunk / ShapeT::kStages);
    const float total = stage.total;
    sharp_ = stage.decay[kChunk - kLastTokens - 1].left < kSharpDecay;
    const int c = lane_ % 4 * 2;  // this lane's tokens: c, c + 1, c + 8, c + 9
    const float4 decays[2] = {*reinterpret_cast<const float4*>(&stage.decay[c]),
                              *reinterpret_cast<const float4*>(&stage.decay[c + 8])};
    float u[2][4] = {};
    solve(u, sum, values, decays, stage);
    if constexpr (ShapeT::kAhead) {
      await(loaded, shared_.barriers[next].loaded, next_use);
      load_keys(keys, chunk + 1);  // after the last chunk they are of no use, and no harm
    }
    uint32_t written[4];  // U diag(left), as first operand
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        written[n * 2 + h] = pack_bf16(u[n][h * 2] * decays[n].y, u[n][h * 2 + 1] * decays[n].w);
      }
    }
#pragma unroll
    for (int s = 0; s < kPieces; ++s) {
      if constexpr (!ShapeT::kAhead) load_matrices_transposed(rows[s], rows_at + s * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s_[s * 2][i] *= total;
        s_[s * 2 + 1][i] *= total;
      }
      mma_in_order(s_[s * 2], written, rows[s][0], rows[s][1]);
      mma_in_order(s_[s * 2 + 1], written, rows[s][2], rows[s][3]);
    }
    if (part_ == 0) {
      shared_.handover[tile_][number].update[lane_] =
          make_uint4(pack_bf16(u[0][0], u[0][1]), pack_bf16(u[0][2], u[0][3]),
                     pack_bf16(u[1][0], u[1][1]), pack_bf16(u[1][2], u[1][3]));
    }
    __syncwarp();
    if (lane_ == 0) {
      if (part_ == 0) barrier_arrive(shared_address(&handed.update));
      barrier_arrive(shared_address(&barriers.used));
    }
  }

  /// S K^T over this warp's columns; `old` becomes the state in bfloat16.
  __device__ __forceinline__ void along_keys(float (&sum)[2][4], uint32_t (&old)[kPieces][4],
                                             uint32_t (&keys)[kPieces][4], int chunk) const {
    constexpr int kSums = kPieces > 2 ? 2 : 1;  // two: half the length of the chain of products
    float along[kSums][2][4] = {};
#pragma unroll
    for (int s = 0; s < kPieces; ++s) {
      if constexpr (!ShapeT::kAhead) load_matrices(keys[s], keys_at(chunk) + s * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        old[s][i] = pack_bf16(s_[s * 2 + i / 2][i % 2 * 2], s_[s * 2 + i / 2][i % 2 * 2 + 1]);
      }
      mma_in_order(along[s % kSums][0], old[s], keys[s][0], keys[s][1]);
      mma_in_order(along[s % kSums][1], old[s], keys[s][2], keys[s][3]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[i / 4][i % 4] = along[0][i / 4][i % 4];
      if constexpr (kSums == 2) sum[i / 4][i % 4] += along[1][i / 4][i % 4];
    }
  }

  /// Adds what the other parts of the tile have. The order gives the same bits in every warp.
  __device__ __forceinline__ void add_up(float (&sum)[2][4], int chunk) const {
    Partial* const partial = shared_.partial[chunk % 2] + tile_ * kParts;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      partial[part_][n][lane_] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
    }
    warps_meet(ShapeT::kTiles == 1 ? 1 : 1 + tile_, kParts * 32);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      // In pairs, whichever the own part is.
      float pairs[kParts][4];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const float4 x = partial[part_ ^ i][n][lane_];
        pairs[i][0] = x.x;
        pairs[i][1] = x.y;
        pairs[i][2] = x.z;
        pairs[i][3] = x.w;
      }
#pragma unroll
      for (int step = 1; step < kParts; step *= 2) {
#pragma unroll
        for (int i = 0; i < kParts; i += 2 * step) {
#pragma unroll
          for (int j = 0; j < 4; ++j) pairs[i][j] += pairs[i + step][j];
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[n][j] = pairs[0][j];
    }
  }

  /// U = (V - P diag(since)) X^T.
  __device__ __forceinline__ void solve(float (&u)[2][4], const float (&sum)[2][4],
                                        const uint32_t (&values)[4], const float4 (&decays)[2],
                                        const Stage<ShapeT>& stage) const {
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
    mma_in_order(u[0], wanted, solved[0], solved[1]);
    mma_in_order(u[1], wanted, solved[2], solved[3]);
  }

  /// The state before a chunk, for the read warps.
  __device__ __forceinline__ void hand_over(const uint32_t (&old)[kPieces][4], int number) const {
    Handover& handover = shared_.handover[tile_][number];
#pragma unroll
    for (int s = 0; s < kPieces; ++s) {
      handover.state[part_ * kPieces + s][lane_] =
          make_uint4(old[s][0], old[s][1], old[s][2], old[s][3]);
    }
    if (sharp_) {
#pragma unroll
      for (int s = 0; s < kPieces; ++s) {
        uint32_t rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = s_[s * 2 + i / 2];
          rest[i] = pack_bf16(pair[i % 2 * 2] - low_bf16(old[s][i]),
                              pair[i % 2 * 2 + 1] - high_bf16(old[s][i]));
        }
        handover.rest[part_ * kPieces + s][lane_] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
      }
    }
    if (part_ == 0 && lane_ == 0) handover.sharp = sharp_;
    announce(shared_.handed[tile_][number].state);
  }

  const Problem& p_;
  Shared<ShapeT>& shared_;
  const int tile_;
  const int part_;
  const int lane_;
  bool sharp_ = false;    // whether the state is, after the chunk before
  size_t offset_;         // of this lane's first element of the state
  float s_[kPairs / 2][4];  // rows lane / 4 and + 8, columns 8 n + 2 (lane % 4) and + 1
};

}  // namespace gdn::fused
