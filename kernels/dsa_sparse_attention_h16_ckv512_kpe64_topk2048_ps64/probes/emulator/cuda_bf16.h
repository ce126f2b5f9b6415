// Stands in for the toolkit's header: a bfloat16 is the upper half of a float.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
