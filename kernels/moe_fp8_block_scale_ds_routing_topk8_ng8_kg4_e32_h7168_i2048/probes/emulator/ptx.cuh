// Stands in for the solution's ptx.cuh: the same functions on a CPU.
#pragma once

#include "emulated.h"

namespace moe {

using namespace emulated;

inline uint32_t pack_fp8(float low, float high) { return round_e4m3(low) | round_e4m3(high) << 8; }

inline void mma_fp8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp<E4m3>(c, a, b[0], b[1]);
}

inline unsigned rank_in_cluster() { return fibers::cluster_rank(); }

inline int load_acquire(const int* source) {
  fibers::give_way();
  return *const_cast<const volatile int*>(source);
}
inline void add_release(int* target, int x) { atomicAdd(target, x); }
inline int add_acquire_release(int* target, int x) { return atomicAdd(target, x); }

}  // namespace moe
