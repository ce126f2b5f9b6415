// Stands in for the solution's ptx.cuh: the same functions on a CPU.
#pragma once

#include "emulated.h"

namespace gdn {

using namespace emulated;

inline uint4 load_shared(uint32_t address) { return loaded<uint4>(address); }
inline void store_shared(uint32_t address, uint4 x) { stored(address, x); }

inline void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                     uint32_t b0, uint32_t b1) {
  multiply_warp<Bf16>(c, {a0, a1, a2, a3}, b0, b1);
}
inline void mma_in_order(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_warp<Bf16>(c, a, b0, b1);
}
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_warp<Tf32>(c, a, b0, b1);
}

}  // namespace gdn
