// 16-byte accesses to the recurrent state, with the cache hints that are worth trying.
//
// The state is read once and written once per call, so neither direction gains from staying in
// the first-level cache; which hint costs least depends on what the second-level cache holds
// when the call starts, hence a knob and not a constant.
#pragma once

#include <cuda_runtime.h>

#include "tunables.h"

namespace gdn {

/// Reads four consecutive floats; `source` is 16-byte aligned.
__device__ __forceinline__ float4 load_state(const float* source) {
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
#else
#error "LOAD_HINT must be 0, 1, 2 or 3"
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
