// The key side of a chunk: gates, the inverse of its triangular system, and q k^T.
//
// It needs no state, so that key warps work ahead of the value warps, each on chunks of its own.
#pragma once

#include "stage.cuh"

namespace gdn::fused {

constexpr float kLog2E = 1.4426950408889634f;
/// Logarithm (base 2) below which a decay is 0 in float32. Sums of smaller ones would only lose
/// the digits of the others.
constexpr float kLeastLog = -128.0f;

/// log(1 + t) for t in [0, 1], to about 2e-7 relative, also for small t.
__device__ __forceinline__ float log1p_unit(float t) {
  // log(1 + t) = 2 artanh(u) with u = t / (2 + t) <= 1/3: six terms of the odd series.
  const float u = t * reciprocal(2.0f + t);
  const float u2 = u * u;
  float series = fmaf(u2, 2.0f / 11.0f, 2.0f / 9.0f);
  series = fmaf(u2, series, 2.0f / 7.0f);
  series = fmaf(u2, series, 2.0f / 5.0f);
  series = fmaf(u2, series, 2.0f / 3.0f);
  series = fmaf(u2, series, 2.0f);
  return u * series;
}

/// log2 of the decay exp(-rate softplus(x)).
__device__ __forceinline__ float log_decay(float rate, float x) {
  const float softplus = fmaxf(x, 0.0f) + log1p_unit(exp2_short(-fabsf(x) * kLog2E));
  return fmaxf(-rate * softplus * kLog2E, kLeastLog);
}

/// One key warp.
template <class ShapeT>
class KeySide {
  using StageT = Stage<ShapeT>;

 public:
  __device__ __forceinline__ KeySide(const Problem& p, const Item& item, Shared<ShapeT>& shared,
                                     int warp)
      : p_(p), item_(item), shared_(shared), warp_(warp), lane_(threadIdx.x % 32) {
    load_gates(warp);
    rate_ = exp2_short(p.A_log[item.head] * kLog2E);
    bias_ = p.dt_bias[item.head];
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int chunk = warp_; chunk < item_.chunks; chunk += ShapeT::kKeyWarps) {
      const Gates gates = make_gates();
      load_gates(chunk + ShapeT::kKeyWarps);
      const int index = chunk % ShapeT::kStages;
      await(shared_.barriers[index].loaded, chunk / ShapeT::kStages);
      products(shared_.stage[index], shared_.barriers[index], gates);
    }
  }

 private:
  /// Of token lane % 16 of a chunk.
  struct Gates {
    float sum;  // log2 of the decay since the chunk's beginning
    float all;  // over the chunk
    float beta;
  };

  __device__ __forceinline__ void load_gates(int chunk) {
    const int token = chunk * kChunk + lane_ % 16;
    real_ = token < item_.length;
    if (real_) {
      const int at = (item_.begin + token) * kHeads + item_.head;
      a_ = p_.a[at];
      b_ = p_.b[at];
    }
  }

  /// Gates of the tokens that load_gates has fetched. Those beyond the end neither decay nor write.
  __device__ __forceinline__ Gates make_gates() const {
    Gates gates;
    gates.sum = real_ ? log_decay(rate_, __bfloat162float(a_) + bias_) : 0.0f;
    gates.beta = real_ ? reciprocal(1.0f + exp2_short(-__bfloat162float(b_) * kLog2E)) : 0.0f;
#pragma unroll
    for (int step = 1; step < kChunk; step *= 2) {
      const float before = __shfl_up_sync(kAllLanes, gates.sum, step, kChunk);
      if (lane_ % 16 >= step) gates.sum += before;
    }
    gates.all = __shfl_sync(kAllLanes, gates.sum, kChunk - 1);
    return gates;
  }

  /// q or k of the chunk, as first operand of an mma: piece s covers columns 16 s to 16 s + 15.
  __device__ __forceinline__ void load_rows(uint32_t (&rows)[8][4], const uint8_t* tile) const {
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      load_matrices(rows[s], shared_address(tile) + lane_ % 16 * kPitch + lane_ / 16 * 16 + s * 32);
    }
  }

  /// x k^T; the second operand is made of the same registers as the first.
  __device__ __forceinline__ void times_keys(float (&product)[2][4], const uint32_t (&x)[8][4],
                                             const uint32_t (&keys)[8][4]) const {
    float odd[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) product[n][i] = 0.0f;
    }
#pragma unroll
    for (int s = 0; s < 8; s += 2) {
      mma_in_order(product[0], x[s], keys[s][0], keys[s][2]);
      mma_in_order(product[1], x[s], keys[s][1], keys[s][3]);
      mma_in_order(odd[0], x[s + 1], keys[s + 1][0], keys[s + 1][2]);
      mma_in_order(odd[1], x[s + 1], keys[s + 1][1], keys[s + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) product[n][i] += odd[n][i];
    }
  }

  __device__ __forceinline__ void products(StageT& stage, StageBarriers& barriers,
                                           const Gates& gates) const {
    uint32_t keys[8][4];
    uint32_t queries[8][4];
    load_rows(keys, stage.k);
    if (lane_ < kChunk) {
      stage.decay[lane_] = {exp2_short(gates.sum), exp2_short(gates.all - gates.sum)};
      stage.beta[lane_] = gates.beta;
    }
    if (lane_ == 0) stage.total = exp2_short(gates.all);
    float product[2][4];
    times_keys(product, keys, keys);

    // This lane's elements of a product: rows r and r + 8, columns c, c + 1, c + 8, c + 9.
    const int r = lane_ / 4;
    const int c = (lane_ % 4) * 2;
    const float row_sum[2] = {__shfl_sync(kAllLanes, gates.sum, r),
                              __shfl_sync(kAllLanes, gates.sum, r + 8)};
    const float row_beta[2] = {__shfl_sync(kAllLanes, gates.beta, r),
                               __shfl_sync(kAllLanes, gates.beta, r + 8)};
    float decay[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = n * 8 + c + i;
        const float sum = __shfl_sync(kAllLanes, gates.sum, column);
        decay[n][i] = r >= column ? exp2_short(row_sum[0] - sum) : 0.0f;
        decay[n][i + 2] = r + 8 >= column ? exp2_short(row_sum[1] - sum) : 0.0f;
      }
    }
    float(&system)[kChunk][kChunk + 4] = shared_.system[warp_];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(&system[r + h * 8][n * 8 + c]) =
            make_float2(row_beta[h] * decay[n][h * 2] * product[n][h * 2],
                        row_beta[h] * decay[n][h * 2 + 1] * product[n][h * 2 + 1]);
      }
    }
    __syncwarp();
    solve(stage, system);
    announce(barriers.solved);

    load_rows(queries, stage.q);
    times_keys(product, queries, keys);
    float mixed[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mixed[n][i] = product[n][i] * (decay[n][i] * p_.scale);
    }
    stage.mixed[lane_] =
        make_uint4(pack_bf16(mixed[0][0], mixed[0][1]), pack_bf16(mixed[1][0], mixed[1][1]),
                   pack_bf16(mixed[0][2], mixed[0][3]), pack_bf16(mixed[1][2], mixed[1][3]));
    announce(barriers.mixed);
  }

  /// X = (I + L)^-1 diag(beta), L the strictly lower part of `system`.
  ///
  /// X' (I + L) = I by rows: lane i has row i, and what it has found of it at column l is taken
  /// from the columns before, l from the last to the first. Exact to float32, whatever the keys;
  /// products of powers of L would cancel where keys are alike.
  __device__ __forceinline__ void solve(StageT& stage,
                                        const float (&system)[kChunk][kChunk + 4]) const {
    const int row = lane_ % 16;
    float x[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j) x[j] = j == row ? 1.0f : 0.0f;
#pragma unroll
    for (int l = kChunk - 1; l > 0; --l) {
#pragma unroll
      for (int block = 0; block * 4 < l; ++block) {
        const float4 piece = *reinterpret_cast<const float4*>(&system[l][block * 4]);
        const float part[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = block * 4 + i;
          if (j < l) x[j] = fmaf(-x[l], part[i], x[j]);
        }
      }
    }
    uint32_t packed[kChunk / 2];
#pragma unroll
    for (int j = 0; j < kChunk; j += 4) {
      const float4 beta = *reinterpret_cast<const float4*>(&stage.beta[j]);
      packed[j / 2] = pack_bf16(x[j] * beta.x, x[j + 1] * beta.y);
      packed[j / 2 + 1] = pack_bf16(x[j + 2] * beta.z, x[j + 3] * beta.w);
    }
    if (lane_ < 16) {
      uint4* target = reinterpret_cast<uint4*>(stage.solved + row * kSolvedPitch);
      target[0] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
      target[1] = make_uint4(packed[4], packed[5], packed[6], packed[7]);
    }
  }

  const Problem& p_;
  const Item& item_;
  Shared<ShapeT>& shared_;
  const int warp_;
  const int lane_;
  float rate_;
  float bias_;
  bool real_;  // of the next chunk, as are a_ and b_
  __nv_bfloat16 a_;
  __nv_bfloat16 b_;
};

}  // namespace gdn::fused
