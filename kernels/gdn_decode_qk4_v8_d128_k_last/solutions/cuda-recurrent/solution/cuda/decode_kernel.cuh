// Device side of the decode step; the idea is explained at the head of gdn_decode.cu.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "gates.cuh"
#include "state_io.cuh"
#include "tunables.h"

namespace gdn {

constexpr int kHeads = 8;                      // value heads, HV
constexpr int kQkHeads = 4;                    // query and key heads, H
constexpr int kHeadSize = 128;                 // K and V
constexpr int kLanes = KOPT_LANES_PER_ROW;     // lanes that share one state row
constexpr int kRowsPerPass = 32 / kLanes;      // rows that a warp touches with one load
constexpr int kChunks = kHeadSize / 4 / kLanes;  // 16-byte pieces of a row per lane
constexpr unsigned kAllLanes = 0xffffffffu;

static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES_PER_ROW must be 8, 16 or 32");

/// Device pointers and scalars of one call; all tensors are contiguous.
struct Params {
  const __nv_bfloat16* q;   // (B, 1, H, K)
  const __nv_bfloat16* k;   // (B, 1, H, K)
  const __nv_bfloat16* v;   // (B, 1, HV, V)
  const float* state;       // (B, HV, V, K), null for zeros
  const float* A_log;       // (HV)
  const __nv_bfloat16* a;   // (B, 1, HV)
  const float* dt_bias;     // (HV)
  const __nv_bfloat16* b;   // (B, 1, HV)
  __nv_bfloat16* output;    // (B, 1, HV, V)
  float* new_state;         // (B, HV, V, K)
  float scale;
};

/// Four consecutive bfloat16 as floats; `source` is 8-byte aligned.
__device__ __forceinline__ float4 load_bf16x4(const __nv_bfloat16* source) {
  const uint2 bits = *reinterpret_cast<const uint2*>(source);
  // A bfloat16 is the upper half of a float; the lower address is the lower half of a word.
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

__device__ __forceinline__ void multiply_add(float4& sum, float4 x, float4 y) {
  sum.x = fmaf(x.x, y.x, sum.x);
  sum.y = fmaf(x.y, y.y, sum.y);
  sum.z = fmaf(x.z, y.z, sum.z);
  sum.w = fmaf(x.w, y.w, sum.w);
}

__device__ __forceinline__ float horizontal(float4 x) { return (x.x + x.y) + (x.z + x.w); }

/// One dot product of two row pieces that a lane holds.
__device__ __forceinline__ float partial_dot(const float4 (&x)[kChunks],
                                             const float4 (&y)[kChunks]) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) multiply_add(sum, x[c], y[c]);
  return horizontal(sum);
}

/// One CTA updates WarpsT * RowsPerWarpT consecutive rows of one (sequence, value head).
///
/// At least one CTA per multiprocessor is asked for, which is no demand but a permission: with it
/// ptxas takes the registers to issue every load before the first use. Without it the loads of q
/// wait until k has been used, a second trip to memory (nvcc 13.0, sm_90a).
template <int WarpsT, int RowsPerWarpT, bool HasStateT>
__global__ void __launch_bounds__(WarpsT * 32, 1) decode_step(const __grid_constant__ Params p) {
  constexpr unsigned kPasses = RowsPerWarpT / kRowsPerPass;
  constexpr unsigned kTiles = kHeadSize / (WarpsT * RowsPerWarpT);
  static_assert(RowsPerWarpT % kRowsPerPass == 0 && kPasses >= 1, "a warp has whole passes");
  static_assert(kTiles * WarpsT * RowsPerWarpT == kHeadSize, "CTAs divide the rows of a head");
  static_assert(kPasses <= kLanes, "each pass has a lane that writes its output");

  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const unsigned piece = lane % kLanes;  // which 16-byte piece of each run of kLanes pieces
  // Rows are counted over all sequences and heads: row = (sequence * HV + head) * V + v.
  const unsigned row = (blockIdx.x * WarpsT + warp) * RowsPerWarpT + lane / kLanes;
  const unsigned item = blockIdx.x / kTiles;  // sequence * HV + head
  const unsigned qk_item = item / (kHeads / kQkHeads);

  const size_t offset = static_cast<size_t>(row) * kHeadSize + piece * 4;
  float4 s[kPasses][kChunks];
#pragma unroll
  for (unsigned r = 0; r < kPasses; ++r) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int step = r * kRowsPerPass * kHeadSize + c * kLanes * 4;
      s[r][c] = HasStateT ? load_state(p.state + offset + step)
                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }

  const float gate_input = __bfloat162float(p.a[item]) + p.dt_bias[item % kHeads];
  const float A_log = p.A_log[item % kHeads];
  const float beta_input = __bfloat162float(p.b[item]);

  const size_t qk_offset = static_cast<size_t>(qk_item) * kHeadSize + piece * 4;
  float4 k[kChunks];
  float4 q[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    k[c] = load_bf16x4(p.k + qk_offset + c * kLanes * 4);
    q[c] = load_bf16x4(p.q + qk_offset + c * kLanes * 4);
  }
  // Of the passes of a row group, lane r loads (and later writes) the value of pass r.
  const unsigned own_row = row + (piece < kPasses ? piece : 0) * kRowsPerPass;
  const float own_v = __bfloat162float(p.v[own_row]);

  const float g = decay_gate(A_log, gate_input);
  const float beta = update_gate(beta_input);

  float qk = partial_dot(q, k);
  float ks[kPasses];
  float qs[kPasses];
#pragma unroll
  for (unsigned r = 0; r < kPasses; ++r) {
    ks[r] = partial_dot(s[r], k);
    qs[r] = partial_dot(s[r], q);
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    qk += __shfl_xor_sync(kAllLanes, qk, step);
#pragma unroll
    for (unsigned r = 0; r < kPasses; ++r) {
      ks[r] += __shfl_xor_sync(kAllLanes, ks[r], step);
      qs[r] += __shfl_xor_sync(kAllLanes, qs[r], step);
    }
  }

  float out = 0.0f;  // of the pass that this lane writes
#pragma unroll
  for (unsigned r = 0; r < kPasses; ++r) {
    const float v = kPasses == 1 ? own_v : __shfl_sync(kAllLanes, own_v, r, kLanes);
    const float delta = beta * (v - g * ks[r]);
    const float o = p.scale * (g * qs[r] + qk * delta);
    out = piece == r ? o : out;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int step = r * kRowsPerPass * kHeadSize + c * kLanes * 4;
      const float4 updated = make_float4(
          fmaf(delta, k[c].x, g * s[r][c].x), fmaf(delta, k[c].y, g * s[r][c].y),
          fmaf(delta, k[c].z, g * s[r][c].z), fmaf(delta, k[c].w, g * s[r][c].w));
      store_state(p.new_state + offset + step, updated);
    }
  }
  if (piece < kPasses) p.output[own_row] = __float2bfloat16_rn(out);
}

}  // namespace gdn
