// What the kernels use of the toolkit's header.
#pragma once

#include <cuda_runtime.h>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
