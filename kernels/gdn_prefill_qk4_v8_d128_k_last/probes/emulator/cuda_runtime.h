// Stands in for the toolkit's header: what the solution's kernels and launches use of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fibers.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time
#define __align__(n) __attribute__((aligned(n)))

using std::max;
using std::min;

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

inline float __uint_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

template <typename T>
T __ldg(const T* source) {
  return *source;
}

template <unsigned (*kValue)()>
struct Index {
  struct X {
    operator unsigned() const { return kValue(); }
  } x;
};

inline const Index<fibers::thread> threadIdx;
inline const Index<fibers::block> blockIdx;
inline const Index<fibers::blocks> gridDim;

inline void __syncthreads() { fibers::meet_block(); }

inline void __syncwarp() {
  char nothing;
  fibers::meet_warp(&nothing, [](void**) {});
}

/// `value` of the lane that `source` gives.
inline float __shfl_sync(unsigned, float value, int source) {
  struct Lane {
    float value;
    int source;
    float result;
  } own{value, source % 32, 0.0f};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(lanes[i]);
      lane->result = static_cast<Lane*>(lanes[lane->source])->value;
    }
  });
  return own.result;
}

inline float __shfl_up_sync(unsigned lanes, float value, int distance, int width = 32) {
  const int lane = threadIdx.x % 32;
  return __shfl_sync(lanes, value, lane % width < distance ? lane : lane - distance);
}

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
constexpr int cudaLaunchAttributeProgrammaticStreamSerialization = 0;

struct dim3 {
  unsigned x;
};
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim{1};
  dim3 blockDim{1};
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

template <class... Arguments>
cudaError_t cudaFuncSetAttribute(void (*)(Arguments...), int, int bytes) {
  return static_cast<size_t>(bytes) <= fibers::kSharedBytes ? cudaSuccess : cudaErrorInvalidValue;
}

/// Runs the grid to its end.
template <class Argument>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Argument),
                               const Argument& argument) {
  const bool fits = config->dynamicSmemBytes <= fibers::kSharedBytes;
  const bool whole_warps = config->blockDim.x % 32 == 0 && config->blockDim.x <= 1024;
  if (!fits || !whole_warps || config->gridDim.x == 0) return cudaErrorInvalidValue;
  fibers::run_grid(config->gridDim.x, config->blockDim.x, [&] { kernel(argument); });
  return cudaSuccess;
}
