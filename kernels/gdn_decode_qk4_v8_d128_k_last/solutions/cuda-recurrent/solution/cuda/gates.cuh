// The two gates of a head, short and free of branches: a cold call fetches its code from memory
// too, so every instruction on the way to the first store counts when the batch is small.
#pragma once

#include <cuda_runtime.h>

namespace gdn {

/// 1 / x with a relative error near 2^-23; 0 for infinite x.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// exp(x) for x <= 0 in two instructions; the relative error is about (2 + |x| / 2) 2^-23.
__device__ __forceinline__ float exp_short(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}

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

/// Decay of the state: exp(-exp(A_log) * softplus(x)), where softplus(x) = log(1 + exp(x)).
__device__ __forceinline__ float decay_gate(float A_log, float x) {
  // expf is exact enough to be multiplied by a large exponent, and is off the longest chain.
  const float rate = expf(A_log);
  return exp_short(-rate * (fmaxf(x, 0.0f) + log1p_unit(exp_short(-fabsf(x)))));
}

/// 1 / (1 + exp(-x)), the strength of the update.
__device__ __forceinline__ float update_gate(float x) { return reciprocal(1.0f + expf(-x)); }

}  // namespace gdn
