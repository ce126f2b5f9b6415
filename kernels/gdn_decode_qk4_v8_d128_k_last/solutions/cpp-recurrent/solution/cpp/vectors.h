// Vectors of floats, bfloat16, and stores that bypass the caches.
//
// GCC's and Clang's vector extension: a vector wider than the machine's registers is split by
// the compiler, so every width runs everywhere.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tunables.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // everything here is inlined; no such call is made
#endif

#define KOPT_INLINE inline __attribute__((always_inline))

template <int kLanes>
struct VectorOf {
  typedef float type __attribute__((vector_size(kLanes * sizeof(float))));
};

inline constexpr int kLanes = KOPT_VECTOR_BYTES / sizeof(float);
using Vec = VectorOf<kLanes>::type;

KOPT_INLINE Vec load(const float* source) {
  Vec value;
  std::memcpy(&value, source, sizeof(Vec));
  return value;
}

KOPT_INLINE void store(float* target, const Vec& value) {
  std::memcpy(target, &value, sizeof(Vec));
}

// Sum of the lanes, halving the vector: log2(lanes) additions.
template <int kCount>
KOPT_INLINE float sum(const typename VectorOf<kCount>::type& value) {
  if constexpr (kCount == 4) {
    return (value[0] + value[2]) + (value[1] + value[3]);
  } else {
    using Half = typename VectorOf<kCount / 2>::type;
    Half low, high;
    std::memcpy(&low, &value, sizeof(Half));
    std::memcpy(&high, reinterpret_cast<const char*>(&value) + sizeof(Half), sizeof(Half));
    return sum<kCount / 2>(low + high);
  }
}

// Whether `stream` differs from `store`; its target must then be aligned to the vector.
#if defined(__SSE2__)
inline constexpr bool kCanStream = true;
#else
inline constexpr bool kCanStream = false;
#endif

// Writes past the caches, in the widest pieces that the machine has.
KOPT_INLINE void stream(float* target, const Vec& value) {
#if defined(__AVX512F__) && KOPT_VECTOR_BYTES == 64
  _mm512_stream_ps(target, std::bit_cast<__m512>(value));
#elif defined(__AVX__) && KOPT_VECTOR_BYTES >= 32
  __m256 parts[sizeof(Vec) / 32];
  std::memcpy(parts, &value, sizeof(Vec));
  for (const __m256& part : parts) _mm256_stream_ps(target + 8 * (&part - parts), part);
#elif defined(__SSE2__)
  __m128 parts[sizeof(Vec) / 16];
  std::memcpy(parts, &value, sizeof(Vec));
  for (const __m128& part : parts) _mm_stream_ps(target + 4 * (&part - parts), part);
#else
  store(target, value);
#endif
}

// Orders streamed stores before everything that this thread publishes afterwards.
KOPT_INLINE void finish_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

using Bf16 = std::uint16_t;  // its bits

KOPT_INLINE float from_bf16(Bf16 bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; a NaN stays a NaN, where rounding alone could make it infinite.
KOPT_INLINE Bf16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<Bf16>(is_nan ? (bits >> 16) | 0x40u : rounded);
}
