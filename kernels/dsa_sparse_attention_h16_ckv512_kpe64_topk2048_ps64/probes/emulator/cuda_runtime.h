// Stands in for the toolkit's header: what the solution's kernel and its launch use of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fibers.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

using std::max;
using std::min;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

struct alignas(8) uint2 {
  uint32_t x, y;
};

inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

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
  fibers::check_read(source, sizeof(T));
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
template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  struct Lane {
    T value;
    int source;
    T result;
  } own{value, source % 32, {}};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(lanes[i]);
      lane->result = static_cast<Lane*>(lanes[lane->source])->value;
    }
  });
  return own.result;
}

template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return __shfl_sync(lanes, value, static_cast<int>(threadIdx.x % 32) ^ mask);
}

inline unsigned __ballot_sync(unsigned, bool value) {
  struct Lane {
    bool value;
    unsigned result;
  } own{value, 0};
  fibers::meet_warp(&own, [](void** lanes) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= unsigned{static_cast<Lane*>(lanes[i])->value} << i;
    for (int i = 0; i < 32; ++i) static_cast<Lane*>(lanes[i])->result = bits;
  });
  return own.result;
}

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr cudaError_t cudaErrorInvalidConfiguration = 9;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
constexpr int cudaLaunchAttributeCooperative = 0;

struct dim3 {
  unsigned x;
};
struct cudaLaunchAttribute {
  int id;
  struct {
    int cooperative;
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

template <class... Arguments>
cudaError_t cudaFuncSetAttribute(void (*)(Arguments...), int attribute, int value) {
  const bool memory = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
  const bool fits = !memory || static_cast<size_t>(value) <= fibers::kSharedBytes;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

/// Runs the grid to its end.
template <class Argument>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Argument),
                               const Argument& argument) {
  const unsigned blocks = config->gridDim.x;
  const bool fits = config->dynamicSmemBytes <= fibers::kSharedBytes;
  const bool whole_warps = config->blockDim.x % 32 == 0 && config->blockDim.x <= 384;
  if (!fits || !whole_warps || blocks == 0 || blocks > fibers::kMostBlocks) {
    return cudaErrorInvalidValue;
  }
  fibers::run_grid(blocks, config->blockDim.x, [&] { kernel(argument); });
  return cudaSuccess;
}
