// Stands in for the solution's wgmma.cuh: the same functions on a CPU.
#pragma once

#include "ptx.cuh"
#include "tensor_map.cuh"

#define MOE_WARPGROUPS 1

namespace moe {

inline uint64_t rows_at(uint32_t address) {
  if (address % 1024 != 0) fibers::fail("misaligned factor");
  return emulated::rows_at(address);
}

template <int kAll>
void multiply(float (&c)[kAll], uint64_t a, uint64_t b, int add) {
  multiply_group<E4m3>(c, a, b, add);
}

inline void copy_box(uint32_t target, const TensorMap& map, int x0, int x1, int x2, int x3, int x4,
                     uint32_t barrier) {
  if (map.dims != 5) fibers::fail("another number of dimensions");
  load_box(target, map, {x0, x1, x2, x3, x4}, barrier);
}
inline void copy_box(uint32_t target, const TensorMap& map, int x0, int x1, uint32_t barrier) {
  if (map.dims != 2) fibers::fail("another number of dimensions");
  load_box(target, map, {x0, x1}, barrier);
}

}  // namespace moe
