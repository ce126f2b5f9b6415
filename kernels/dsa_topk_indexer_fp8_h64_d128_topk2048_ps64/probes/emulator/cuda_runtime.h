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
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

template <typename To, typename From>
To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline float __uint_as_float(uint32_t bits) { return same_bits<float>(bits); }
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline uint32_t __float_as_uint(float x) { return same_bits<uint32_t>(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? std::fmin(x, 1.0f) : 0.0f; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }

template <typename T>
T __ldg(const T* source) {
  fibers::check_read(source, sizeof(T));
  return *source;
}

template <unsigned (*kX)(), unsigned (*kY)()>
struct Index {
  struct X {
    operator unsigned() const { return kX(); }
  } x;
  struct Y {
    operator unsigned() const { return kY(); }
  } y;
};

inline unsigned nothing() { return 0; }
inline const Index<fibers::thread, nothing> threadIdx;
inline const Index<fibers::block, fibers::block_row> blockIdx;
inline const Index<fibers::blocks, fibers::block_rows> gridDim;

inline void __syncthreads() { fibers::meet_block(); }

/// What `combine` makes of the values of a warp, for each lane.
template <typename T, class Combine>
T of_warp(T value, Combine combine) {
  struct Lane {
    T value, result;
    Combine* combine;
  } own{value, value, &combine};
  fibers::meet_warp(&own, [](void** lanes) {
    T values[32];
    for (int i = 0; i < 32; ++i) values[i] = static_cast<Lane*>(lanes[i])->value;
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(lanes[i]);
      lane->result = (*lane->combine)(values, i);
    }
  });
  return own.result;
}

template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  return of_warp(value, [=](const T* values, int) { return values[source % 32]; });
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int distance) {
  return of_warp(value, [=](const T* values, int i) { return values[i < distance ? i : i - distance]; });
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  return of_warp(value, [=](const T* values, int i) { return values[i ^ distance]; });
}
inline unsigned __ballot_sync(unsigned, bool bit) {
  return of_warp<unsigned>(bit, [](const unsigned* values, int) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= values[i] << i;
    return bits;
  });
}
inline uint32_t __reduce_add_sync(unsigned, uint32_t value) {
  return of_warp(value, [](const uint32_t* x, int) {
    uint32_t sum = 0;
    for (int i = 0; i < 32; ++i) sum += x[i];
    return sum;
  });
}
inline uint32_t __reduce_min_sync(unsigned, uint32_t value) {
  return of_warp(value, [](const uint32_t* x, int) { return *std::min_element(x, x + 32); });
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t value) {
  return of_warp(value, [](const uint32_t* x, int) { return *std::max_element(x, x + 32); });
}

template <typename T>
T atomicAdd(T* target, T value) {
  const T before = *target;
  *target += value;
  return before;
}
inline void atomicMin(unsigned long long* target, uint64_t value) {
  *target = std::min<unsigned long long>(*target, value);
}
inline void atomicMax(unsigned long long* target, uint64_t value) {
  *target = std::max<unsigned long long>(*target, value);
}
