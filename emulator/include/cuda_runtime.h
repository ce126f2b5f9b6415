// Stands in for the toolkit's header: what kernels and launches of the solutions use of it.
#pragma once

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>

#include "fibers.h"

// `__shared__` is none of these: `emulator.building` has written something else in its place.
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

using std::max;
using std::min;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? std::fmin(x, 1.0f) : 0.0f; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __clzll(unsigned long long x) { return std::countl_zero(x); }

inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}

template <class T>
T __ldg(const T* source) {
  fibers::check_read(source, sizeof(T));
  return *source;
}
template <class T>
T __ldcg(const T* source) {
  return __ldg(source);
}
template <class T>
void __stcg(T* target, T x) {
  *target = x;
}
inline void __threadfence() {}

template <class T>
T atomicAdd(T* target, std::type_identity_t<T> x) {
  const T before = *target;
  *target += x;
  fibers::progress();
  return before;
}
template <class T>
T atomicMin(T* target, std::type_identity_t<T> x) {
  const T before = *target;
  *target = std::min(before, x);
  fibers::progress();
  return before;
}
template <class T>
T atomicMax(T* target, std::type_identity_t<T> x) {
  const T before = *target;
  *target = std::max(before, x);
  fibers::progress();
  return before;
}

namespace emulated {

template <unsigned (*kX)(), unsigned (*kY)()>
struct Index {
  struct X {
    operator unsigned() const { return kX(); }
  } x;
  struct Y {
    operator unsigned() const { return kY(); }
  } y;
};

inline unsigned zero() { return 0; }
inline unsigned one() { return 1; }

/// What lane i gets: `choose(values, i)` of the values that all lanes bring.
template <class T, class Choose>
T of_warp(unsigned lanes, T value, const Choose& choose) {
  if (lanes != 0xffffffffu) fibers::fail("a mask that leaves lanes out");
  struct Lane {
    T value;
    T result;
    const Choose* choose;
  } own{value, value, &choose};
  fibers::meet_warp(&own, [](void** all) {
    T values[32];
    for (int i = 0; i < 32; ++i) values[i] = static_cast<Lane*>(all[i])->value;
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(all[i]);
      lane->result = (*lane->choose)(values, i);
    }
  });
  return own.result;
}

/// The same for all lanes: all values, one combined with the next.
template <class T, class Combine>
T all_of_warp(unsigned lanes, T value, const Combine& combine) {
  return of_warp(lanes, value, [&](const T* values, int) {
    T result = values[0];
    for (int i = 1; i < 32; ++i) result = combine(result, values[i]);
    return result;
  });
}

}  // namespace emulated

inline const emulated::Index<fibers::thread, emulated::zero> threadIdx;
inline const emulated::Index<fibers::threads, emulated::one> blockDim;
inline const emulated::Index<fibers::block, fibers::block_row> blockIdx;
inline const emulated::Index<fibers::blocks, fibers::block_rows> gridDim;

inline void __syncthreads() { fibers::meet_block(); }

inline void __syncwarp() {
  char nothing;
  fibers::meet_warp(&nothing, [](void**) {});
}

template <class T>
T __shfl_sync(unsigned lanes, T value, int source, int width = 32) {
  return emulated::of_warp(lanes, value, [=](const T* values, int lane) {
    return values[lane / width * width + source % width];
  });
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return emulated::of_warp(lanes, value,
                           [=](const T* values, int lane) { return values[lane ^ mask]; });
}
template <class T>
T __shfl_up_sync(unsigned lanes, T value, int distance, int width = 32) {
  return emulated::of_warp(lanes, value, [=](const T* values, int lane) {
    return values[lane % width < distance ? lane : lane - distance];
  });
}
inline unsigned __ballot_sync(unsigned lanes, bool bit) {
  return emulated::of_warp(lanes, static_cast<unsigned>(bit), [](const unsigned* values, int) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= values[i] << i;
    return bits;
  });
}
template <class T>
T __reduce_add_sync(unsigned lanes, T value) {
  return emulated::all_of_warp(lanes, value, [](T x, T y) { return x + y; });
}
template <class T>
T __reduce_min_sync(unsigned lanes, T value) {
  return emulated::all_of_warp(lanes, value, [](T x, T y) { return std::min(x, y); });
}
template <class T>
T __reduce_max_sync(unsigned lanes, T value) {
  return emulated::all_of_warp(lanes, value, [](T x, T y) { return std::max(x, y); });
}
inline unsigned __reduce_or_sync(unsigned lanes, unsigned value) {
  return emulated::all_of_warp(lanes, value, [](unsigned x, unsigned y) { return x | y; });
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorCooperativeLaunchTooLarge = 720,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
using cudaStream_t = void*;

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int cooperative;
    int programmaticStreamSerializationAllowed;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

namespace emulated {

/// Bytes of dynamic shared memory that a kernel may have, where it is more than for all.
inline std::map<void (*)(), size_t> allowed_bytes;

inline bool may_have(void (*kernel)(), size_t bytes) {
  if (bytes <= fibers::kStaticSharedBytes) return true;
  const auto found = allowed_bytes.find(kernel);
  return found != allowed_bytes.end() && bytes <= found->second;
}

inline cudaError_t launch(const cudaLaunchConfig_t& config, void (*kernel)(),
                          const std::function<void()>& body) {
  fibers::Grid grid{config.gridDim.x, config.gridDim.y, config.blockDim.x, 1,
                    config.dynamicSmemBytes};
  bool cooperative = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) grid.cluster = attribute.val.clusterDim.x;
    if (attribute.id == cudaLaunchAttributeCooperative) cooperative = attribute.val.cooperative != 0;
  }
  const bool blocks = grid.blocks > 0 && grid.rows > 0 && config.gridDim.z == 1;
  const bool threads = grid.threads > 0 && grid.threads % 32 == 0 &&
                       grid.threads <= fibers::kMostThreads && config.blockDim.y == 1;
  const bool clusters = grid.cluster > 0 && grid.cluster <= fibers::kMostCluster &&
                        grid.blocks % grid.cluster == 0;
  if (!blocks || !threads || !clusters || !may_have(kernel, grid.dynamic_bytes)) {
    return cudaErrorInvalidValue;
  }
  if (cooperative && grid.blocks * grid.rows > fibers::blocks_at_once()) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  fibers::run_grid(grid, body);
  return cudaSuccess;
}

}  // namespace emulated

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int value) {
  const auto bytes = static_cast<size_t>(value);
  if (bytes > fibers::kSharedBytes) return cudaErrorInvalidValue;
  emulated::allowed_bytes[reinterpret_cast<void (*)()>(kernel)] = bytes;
  return cudaSuccess;
}

/// Runs the grid to its end.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  return emulated::launch(*config, reinterpret_cast<void (*)()>(kernel),
                          [&] { kernel(arguments...); });
}
