// What a warp does with rows of the state once they have arrived, wherever they came from.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "gates.cuh"
#include "tunables.h"

namespace gdn {

constexpr int kHeads = 8;        // value heads, HV
constexpr int kQkHeads = 4;      // query and key heads, H
constexpr int kHeadSize = 128;   // K and V
constexpr unsigned kAllLanes = 0xffffffffu;

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

/// How LanesT lanes share a row: lane `piece` of them has every LanesT-th run of four columns.
template <int LanesT>
struct Layout {
  static_assert(LanesT == 8 || LanesT == 16 || LanesT == 32, "8, 16 or 32 lanes share a row");
  static constexpr int kRowsPerPass = 32 / LanesT;          // that a warp touches with one load
  static constexpr int kChunks = kHeadSize / 4 / LanesT;    // 16-byte pieces of a row per lane
};

/// What has been loaded of a head, before anything waits for it.
template <int LanesT>
struct RawHead {
  uint2 q[Layout<LanesT>::kChunks];
  uint2 k[Layout<LanesT>::kChunks];
  float A_log, dt_bias;
  __nv_bfloat16 a, b;
};

/// What all rows of a head share: the lane's columns of q and k, the gates, q . k.
template <int LanesT>
struct Head {
  float4 q[Layout<LanesT>::kChunks];
  float4 k[Layout<LanesT>::kChunks];
  float decay, beta, qk;
};

/// Four bfloat16 as floats: one is the upper half of a float, the lower address the lower half.
__device__ __forceinline__ float4 widen(uint2 bits) {
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

/// One dot product of two row pieces that a lane holds.
template <int ChunksT>
__device__ __forceinline__ float partial_dot(const float4 (&x)[ChunksT],
                                             const float4 (&y)[ChunksT]) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int c = 0; c < ChunksT; ++c) {
    sum.x = fmaf(x[c].x, y[c].x, sum.x);
    sum.y = fmaf(x[c].y, y[c].y, sum.y);
    sum.z = fmaf(x[c].z, y[c].z, sum.z);
    sum.w = fmaf(x[c].w, y[c].w, sum.w);
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

/// Issues all loads of `item`, which counts sequence * HV + head.
template <int LanesT>
__device__ __forceinline__ RawHead<LanesT> load_head(const Params& p, unsigned item,
                                                     unsigned piece) {
  RawHead<LanesT> raw;
  raw.a = p.a[item];
  raw.dt_bias = p.dt_bias[item % kHeads];
  raw.A_log = p.A_log[item % kHeads];
  raw.b = p.b[item];
  const size_t offset =
      static_cast<size_t>(item / (kHeads / kQkHeads)) * kHeadSize + piece * 4;
  const uint2* q = reinterpret_cast<const uint2*>(p.q + offset);
  const uint2* k = reinterpret_cast<const uint2*>(p.k + offset);
#pragma unroll
  for (int c = 0; c < Layout<LanesT>::kChunks; ++c) {
    raw.k[c] = k[c * LanesT];
    raw.q[c] = q[c * LanesT];
  }
  return raw;
}

template <int LanesT>
__device__ __forceinline__ Head<LanesT> make_head(const RawHead<LanesT>& raw) {
  Head<LanesT> head;
#pragma unroll
  for (int c = 0; c < Layout<LanesT>::kChunks; ++c) {
    head.k[c] = widen(raw.k[c]);
    head.q[c] = widen(raw.q[c]);
  }
  head.decay = decay_gate(raw.A_log, __bfloat162float(raw.a) + raw.dt_bias);
  head.beta = update_gate(__bfloat162float(raw.b));
  head.qk = partial_dot(head.q, head.k);
#pragma unroll
  for (int step = 1; step < LanesT; step *= 2) {
    head.qk += __shfl_xor_sync(kAllLanes, head.qk, step);
  }
  return head;
}

/// Steps the rows of PassesT passes: `put(pass, chunk, value)` gets every updated piece.
///
/// `value_of(pass)` is v of this lane's row of a pass. Returns the read-out of the pass that has
/// the number `piece`, for that lane to write.
template <int LanesT, int PassesT, typename ValueT, typename PutT>
__device__ __forceinline__ float step_rows(const Head<LanesT>& head, float scale, unsigned piece,
                                           const float4 (&s)[PassesT][Layout<LanesT>::kChunks],
                                           ValueT value_of, PutT put) {
  static_assert(PassesT <= LanesT, "each pass has a lane that writes its output");
  float ks[PassesT];
  float qs[PassesT];
#pragma unroll
  for (int r = 0; r < PassesT; ++r) {
    ks[r] = partial_dot(s[r], head.k);
    qs[r] = partial_dot(s[r], head.q);
  }
#pragma unroll
  for (int step = 1; step < LanesT; step *= 2) {
#pragma unroll
    for (int r = 0; r < PassesT; ++r) {
      ks[r] += __shfl_xor_sync(kAllLanes, ks[r], step);
      qs[r] += __shfl_xor_sync(kAllLanes, qs[r], step);
    }
  }
  float out = 0.0f;
#pragma unroll
  for (int r = 0; r < PassesT; ++r) {
    const float delta = head.beta * (value_of(r) - head.decay * ks[r]);
    const float o = scale * (head.decay * qs[r] + head.qk * delta);
    out = piece == static_cast<unsigned>(r) ? o : out;
#pragma unroll
    for (int c = 0; c < Layout<LanesT>::kChunks; ++c) {
      put(r, c, make_float4(fmaf(delta, head.k[c].x, head.decay * s[r][c].x),
                            fmaf(delta, head.k[c].y, head.decay * s[r][c].y),
                            fmaf(delta, head.k[c].z, head.decay * s[r][c].z),
                            fmaf(delta, head.k[c].w, head.decay * s[r][c].w)));
    }
  }
  return out;
}

}  // namespace gdn
