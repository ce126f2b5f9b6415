// Vectors of floats, bfloat16 and the elementary functions of the gates.
//
// GCC's and Clang's vector extension: a vector wider than the machine's registers is split by
// the compiler, so every width runs everywhere.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tunables.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // everything here is inlined; no such call is made
#endif

#define KOPT_INLINE inline __attribute__((always_inline))

template <int kCount>
struct VectorOf {
  typedef float type __attribute__((vector_size(kCount * sizeof(float))));
};

inline constexpr int kLanes = KOPT_VECTOR_BYTES / sizeof(float);
using Vec = VectorOf<kLanes>::type;
using Vec4 = VectorOf<4>::type;

template <typename V = Vec>
KOPT_INLINE V load(const float* source) {
  V value;
  std::memcpy(&value, source, sizeof(V));
  return value;
}

template <typename V>
KOPT_INLINE void store(float* target, const V& value) {
  std::memcpy(target, &value, sizeof(V));
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

// target[c][r] = source[r][c], in 4 x 4 blocks; rows and cols are multiples of 4.
inline void transpose(const float* source, int source_stride, float* target, int target_stride,
                      int rows, int cols) {
  for (int r = 0; r < rows; r += 4) {
    for (int c = 0; c < cols; c += 4) {
      const float* from = source + r * source_stride + c;
      const Vec4 a = load<Vec4>(from);
      const Vec4 b = load<Vec4>(from + source_stride);
      const Vec4 d = load<Vec4>(from + 2 * source_stride);
      const Vec4 e = load<Vec4>(from + 3 * source_stride);
      float* to = target + c * target_stride + r;
      for (int i = 0; i < 4; ++i) {
        store<Vec4>(to + i * target_stride, Vec4{a[i], b[i], d[i], e[i]});
      }
    }
  }
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

// exp(x) for x <= 0, to about 1e-7 relative; exactly 0 below -87, before denormals begin.
// Without branches and calls, so that loops over it become vector code. NaN gives NaN.
KOPT_INLINE float exp_of_nonpositive(float x) {
  const float bounded = x < -87.0f ? -87.0f : (x > 0.0f ? 0.0f : x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float exponent = shifted - 12582912.0f;
  const float rest = (bounded - exponent * 0.693145752f) - exponent * 1.42860677e-6f;
  float series = 1.0f / 5040.0f;
  series = series * rest + 1.0f / 720.0f;
  series = series * rest + 1.0f / 120.0f;
  series = series * rest + 1.0f / 24.0f;
  series = series * rest + 1.0f / 6.0f;
  series = series * rest + 0.5f;
  series = series * rest + 1.0f;
  series = series * rest + 1.0f;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u + 127u) << 23;
  const float result = series * std::bit_cast<float>(power);
  return x < -87.0f ? 0.0f : result;
}

inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
