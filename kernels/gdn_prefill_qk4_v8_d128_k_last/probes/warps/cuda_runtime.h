// Stands in for the toolkit's header: what the kernels of cuda-chunked use of the language.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time
#define __align__(n) __attribute__((aligned(n)))

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint4 {
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

namespace warps {

extern char shared[];  // dynamic shared memory

unsigned thread();
unsigned block();
unsigned blocks();

/// Lets other threads run.
void give_way();
void meet_block();
/// All 32 lanes of the warp come with an argument; `act` gets the 32 of them, once.
void meet_warp(void* argument, void (*act)(void** arguments));

template <unsigned (*kValue)()>
struct Index {
  struct X {
    operator unsigned() const { return kValue(); }
  } x;
};

}  // namespace warps

inline const warps::Index<warps::thread> threadIdx;
inline const warps::Index<warps::block> blockIdx;
inline const warps::Index<warps::blocks> gridDim;

inline void __syncthreads() { warps::meet_block(); }

inline void __syncwarp() {
  char nothing;
  warps::meet_warp(&nothing, [](void**) {});
}

inline float __shfl_up_sync(unsigned, float value, int distance) {
  struct Lane {
    float value;
    int distance;
    float result;
  } own{value, distance, 0.0f};
  warps::meet_warp(&own, [](void** arguments) {
    for (int i = 0; i < 32; ++i) {
      auto* lane = static_cast<Lane*>(arguments[i]);
      const int source = i >= lane->distance ? i - lane->distance : i;
      lane->result = static_cast<Lane*>(arguments[source])->value;
    }
  });
  return own.result;
}
