// Stands in for the toolkit's header: what the solution's kernels and launches use of it.
#pragma once

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __clz(unsigned x) { return std::countl_zero(x); }

template <typename T>
T __ldg(const T* source) {
  return *source;
}
template <typename T>
T __ldcg(const T* source) {
  return *source;
}
template <typename T>
void __stcg(T* target, T x) {
  *target = x;
}
inline void __threadfence() {}

inline int atomicAdd(int* target, int x) {
  const int before = *target;
  *target += x;
  fibers::progress();
  return before;
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

/// What lane i gets of what all lanes bring; `choose` sees the lanes' values and arguments.
template <class T, class F>
T exchange(T value, int argument, F) {
  struct Lane {
    T value;
    int argument;
    T result;
  } own{value, argument, T{}};
  fibers::meet_warp(&own, [](void** lanes) {
    T values[32];
    for (int i = 0; i < 32; ++i) values[i] = static_cast<Lane*>(lanes[i])->value;
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(lanes[i]);
      lane->result = F{}(values, i, lane->argument);
    }
  });
  return own.result;
}

template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return exchange(value, source, [](const T* x, int, int from) { return x[from % 32]; });
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return exchange(value, mask, [](const T* x, int lane, int bits) { return x[lane ^ bits]; });
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  return exchange(value, distance,
                  [](const T* x, int lane, int d) { return x[lane < d ? lane : lane - d]; });
}
inline unsigned __ballot_sync(unsigned, bool here) {
  return exchange(static_cast<unsigned>(here), 0, [](const unsigned* x, int, int) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= x[i] << i;
    return all;
  });
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return exchange(value, 0, [](const unsigned* x, int, int) { return *std::max_element(x, x + 32); });
}
inline unsigned __reduce_or_sync(unsigned, unsigned value) {
  return exchange(value, 0, [](const unsigned* x, int, int) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= x[i];
    return all;
  });
}
inline int __reduce_add_sync(unsigned, int value) {
  return exchange(value, 0, [](const int* x, int, int) {
    int all = 0;
    for (int i = 0; i < 32; ++i) all += x[i];
    return all;
  });
}

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
constexpr int cudaLaunchAttributeProgrammaticStreamSerialization = 0;
constexpr int cudaLaunchAttributeClusterDimension = 1;

struct dim3 {
  unsigned x;
};
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
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
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  const bool fits = config->dynamicSmemBytes <= fibers::kSharedBytes;
  const bool whole_warps = config->blockDim.x % 32 == 0 && config->blockDim.x <= 1024;
  if (!fits || !whole_warps || config->gridDim.x == 0) return cudaErrorInvalidValue;
  fibers::run_grid(config->gridDim.x, config->blockDim.x, [&] { kernel(arguments...); });
  return cudaSuccess;
}
