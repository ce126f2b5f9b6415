// Stands in for the solution's ptx.cuh: the same functions on a CPU.
#pragma once

#include "emulated.h"
#include "tunables.h"

namespace dsa {

using namespace emulated;

inline float4 load_shared(uint32_t address) { return loaded<float4>(address); }
inline void store_shared(uint32_t address, float4 x) { stored(address, x); }

inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_warp<Bf16>(c, a, b0, b1);
}

template <class T>
void load_global(T& x, const T* source, bool real) {
  fibers::give_way();
  if (real) x = *source;
}

template <class T>
void store_global(T* target, T x, bool real) {
  if (!real) return;
  memcpy(target, &x, sizeof(T));
  fibers::progress();
}

}  // namespace dsa
