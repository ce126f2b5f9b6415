// Stands in for the solution's wgmma.cuh: the same functions on a CPU.
#pragma once

#include "maps.cuh"
#include "ptx.cuh"

#define GDN_WARPGROUPS 1

namespace gdn {

constexpr int kAtomBytes = 8 * 128;

inline void multiply_64(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  multiply_group<Bf16>(c, a, b, add);
}
inline void multiply_128(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  multiply_group<Bf16>(c, a, b, add);
}
inline void multiply_shared_64(float (&c)[32], uint64_t a, uint64_t b, int add) {
  multiply_group<Bf16>(c, a, b, add);
}
inline void multiply_shared_128(float (&c)[64], uint64_t a, uint64_t b, int add) {
  multiply_group<Bf16>(c, a, b, add);
}

inline void copy_box(uint32_t target, const TensorMap& map, int column, int row, uint32_t barrier) {
  load_box(target, map.map, {column * map.bytes, row}, barrier);
}
inline void store_box(const TensorMap& map, int column, int row, uint32_t source) {
  store_box_at(map.map, {column * map.bytes, row}, source);
}

inline void flag_raise(unsigned* flag, unsigned readers) {
  if (*flag != 0) fibers::fail("a flag is up already");
  *flag = readers;
  fibers::progress();
}
inline void flag_take(unsigned* flag) {
  fibers::wait_until([=] { return *const_cast<const volatile unsigned*>(flag) != 0; });
  --*flag;
}

}  // namespace gdn
