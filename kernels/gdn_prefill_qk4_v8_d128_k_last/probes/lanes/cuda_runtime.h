// What the kernels use of the toolkit's header, for one lane that runs on a CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

struct Index {
  unsigned x;
};
extern Index threadIdx;
extern Index blockIdx;
extern Index gridDim;

using std::max;

template <typename T>
T __ldg(const T* source) {
  return *source;
}

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

void __syncthreads();
void __syncwarp();

/// `value` of another lane of the warp.
uint32_t value_of_lane(uint32_t value, int lane);

inline float __shfl_sync(unsigned, float value, int lane) {
  return __uint_as_float(value_of_lane(__float_as_uint(value), lane % 32));
}

inline float __shfl_up_sync(unsigned, float value, int step, int width) {
  const int lane = threadIdx.x % 32;
  const int source = lane % width < step ? lane : lane - step;
  return __uint_as_float(value_of_lane(__float_as_uint(value), source));
}
