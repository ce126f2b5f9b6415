// 16-byte accesses to the recurrent state, with the cache hints that are worth trying.
//
// The state is read once and written once per call, so neither direction gains from staying in
// the first-level cache. In the second level a line that has been read is of no more use either:
// as the first to be evicted it makes room for the next one without a write-back.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tunables.h"

namespace gdn {

/// What the second-level cache should do with lines of the old state; 0 where nothing is asked.
__device__ __forceinline__ uint64_t load_policy() {
  uint64_t policy = 0;
#if KOPT_LOAD_HINT == 4
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}

/// Reads four consecutive floats; `source` is 16-byte aligned.
__device__ __forceinline__ float4 load_state(const float* source, uint64_t policy) {
  float4 value;
#if KOPT_LOAD_HINT == 0  // plain
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 1  // not kept in the first-level cache
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 2  // streaming: first to be evicted at both levels
  asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 3  // a miss fetches 256 bytes: a state row is 512 and is read whole
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 4  // not kept in the first-level cache, first to leave the second
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source), "l"(policy));
#else
#error "LOAD_HINT must be 0, 1, 2, 3 or 4"
#endif
  return value;
}

/// Writes four consecutive floats; `target` is 16-byte aligned.
__device__ __forceinline__ void store_state(float* target, float4 value) {
#if KOPT_STORE_HINT == 0  // plain
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
#elif KOPT_STORE_HINT == 1  // streaming
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
#elif KOPT_STORE_HINT == 2  // not kept in the first-level cache
  asm volatile("st.global.L1::no_allocate.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
#else
#error "STORE_HINT must be 0, 1 or 2"
#endif
}

}  // namespace gdn
