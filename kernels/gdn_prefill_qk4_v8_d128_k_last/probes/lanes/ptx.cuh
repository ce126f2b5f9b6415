// Takes the place of the solutions' ptx.cuh; lanes.cpp has the bodies.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace gdn {

constexpr unsigned kAllLanes = 0xffffffffu;
extern uint8_t memory[];  // the CTA's shared memory; addresses are offsets into it

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - memory);
}

inline float exp2_short(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;
}

inline float reciprocal(float x) { return 1.0f / x; }

inline uint32_t round_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint32_t pack_bf16(float low, float high) {
  return round_bf16(low) | round_bf16(high) << 16;
}

inline float low_bf16(uint32_t packed) { return __uint_as_float(packed << 16); }
inline float high_bf16(uint32_t packed) { return __uint_as_float(packed & 0xffff0000u); }

void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void load_matrices(uint32_t (&m)[4], uint32_t address);
void load_transposed(uint32_t (&m)[4], uint32_t address);
uint32_t transpose(uint32_t matrix);
void copy_16(uint32_t target, const void* source, bool real);
void copies_arrive(uint32_t barrier);
inline void prefetch(const void*, uint32_t) {}
void barrier_init(uint32_t barrier, uint32_t arrivals);
void barrier_arrive(uint32_t barrier);
void barrier_wait(uint32_t barrier, uint32_t parity);
void sync_value_warps();

}  // namespace gdn
