// What preparing a chunk takes, whatever its products are made with: gates, places, inverses.
#pragma once

#include "ptx.cuh"
#include "record.cuh"

namespace gdn::chunked {

constexpr int kPrepareThreads = 128;
constexpr int kPitch = kRowBytes / 4;  // floats of a row of the 64 x 64 matrices

/// Bounds of the sums of log2-decays in a chunk, so that their differences stay exact enough:
/// 2^-120 is nothing beside any other number here.
constexpr float kLeastLog2Decay = -120.0f;

struct Gates {
  float log2_decay;
  float strength;
};

__device__ __forceinline__ Gates gates_of(const Params& p, int64_t token, int head) {
  const int64_t at = token * kHeads + head;
  const float x = __bfloat162float(p.a[at]) + p.dt_bias[head];
  const float write = __bfloat162float(p.b[at]);
  const float step = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
  const float decay = -expf(p.A_log[head]) * step * 1.4426950408889634f;
  return {fmaxf(decay, kLeastLog2Decay), 1.0f / (1.0f + expf(-write))};
}

/// Tokens of a slot.
struct Place {
  int64_t first;  // token
  int count;      // tokens; at most 0 where the slot is not used
};

/// Searches with all threads of a block.
__device__ __forceinline__ Place place_of(const Params& p, int64_t slot, Place& found) {
  for (int n = threadIdx.x; n < p.sequences; n += kPrepareThreads) {
    const int64_t begin = p.cu_seqlens[n];
    const int64_t end = p.cu_seqlens[n + 1];
    if (slot_of(begin, n) <= slot && slot < slot_of(end, n + 1)) {
      const int64_t first = begin + (slot - slot_of(begin, n)) * kChunk;
      const int64_t rest = end - first;
      found = {first, static_cast<int>(rest < kChunk ? rest : kChunk)};
    }
  }
  __syncthreads();
  return found;
}

/// Inverse of I + L for one 16 x 16 diagonal block, by substitution; lane j % 16 has column j.
__device__ __forceinline__ void invert_diagonal(const float* lower, float* inverse, int block,
                                                int lane) {
  const int column = lane % 16;
  const float* rows = lower + block * 16 * (kPitch + 1);
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum[2] = {i == column ? 1.0f : 0.0f, 0.0f};  // two, to wait less for one another
#pragma unroll
    for (int k4 = 0; k4 < i; k4 += 4) {
      const float4 l = *reinterpret_cast<const float4*>(rows + i * kPitch + k4);
      sum[0] = fmaf(-l.x, x[k4], sum[0]);
      if (k4 + 1 < i) sum[1] = fmaf(-l.y, x[k4 + 1], sum[1]);
      if (k4 + 2 < i) sum[0] = fmaf(-l.z, x[k4 + 2], sum[0]);
      if (k4 + 3 < i) sum[1] = fmaf(-l.w, x[k4 + 3], sum[1]);
    }
    x[i] = sum[0] + sum[1];
  }
  if (lane < 16) {
    float* target = inverse + block * 16 * (kPitch + 1) + column;
#pragma unroll
    for (int i = 0; i < 16; ++i) target[i * kPitch] = x[i];
  }
}

/// A operand (16 x 8) at `matrix`. Columns 2 t and 2 t + 1 stand where the instruction has t and
/// t + 4: any order of the summed index will do, and an accumulator has this one.
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const float* matrix, int g, int t) {
  const float2 upper = *reinterpret_cast<const float2*>(matrix + g * kPitch + 2 * t);
  const float2 below = *reinterpret_cast<const float2*>(matrix + (g + 8) * kPitch + 2 * t);
  a[0] = to_tf32(upper.x);
  a[1] = to_tf32(below.x);
  a[2] = to_tf32(upper.y);
  a[3] = to_tf32(below.y);
}

/// c += a b with b (8 x 8) at `matrix`, in the same order of the summed index.
__device__ __forceinline__ void multiply_b(float (&c)[4], const uint32_t (&a)[4],
                                           const float* matrix, int g, int t) {
  const float* at = matrix + 2 * t * kPitch + g;
  mma_tf32(c, a, to_tf32(at[0]), to_tf32(at[kPitch]));
}

/// inverse[rows, columns] = -inverse[rows, middle] lower[middle, below] inverse[below, columns]
/// for 16 rows from `row` and kTiles * 8 columns from `column`; `middle` starts at `origin` and
/// `below` at `origin - kSize`. Only the parts of the two inverses that are not zero are read.
template <int kSize, int kTiles>
__device__ __forceinline__ void invert_below(const float* lower, float* inverse, int origin,
                                             int row, int column, int g, int t) {
  constexpr int kSteps = kSize / 8;
  const int below = origin - kSize;
  float product[kSteps][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (origin + step * 8 >= row + 16) continue;
    uint32_t a[4];
    load_a(a, inverse + row * kPitch + origin + step * 8, g, t);
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      multiply_b(product[n], a, lower + (origin + step * 8) * kPitch + below + n * 8, g, t);
    }
  }
  float result[kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (below + step * 8 + 8 <= column / 16 * 16) continue;
    const uint32_t a[4] = {to_tf32(-product[step][0]), to_tf32(-product[step][2]),
                           to_tf32(-product[step][1]), to_tf32(-product[step][3])};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      multiply_b(result[n], a, inverse + (below + step * 8) * kPitch + column + n * 8, g, t);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    float* target = inverse + (row + g) * kPitch + column + n * 8 + 2 * t;
    *reinterpret_cast<float2*>(target) = make_float2(result[n][0], result[n][1]);
    *reinterpret_cast<float2*>(target + 8 * kPitch) = make_float2(result[n][2], result[n][3]);
  }
}

}  // namespace gdn::chunked
