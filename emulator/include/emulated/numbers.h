// Numbers of few bits, and functions that are less exact on a GPU.
#pragma once

#include <array>

#include "../cuda_bf16.h"

namespace emulated {

inline uint32_t round_bf16(float x) { return __float2bfloat16(x).bits; }

inline uint32_t pack_bf16(float low, float high) {
  return round_bf16(low) | round_bf16(high) << 16;
}

inline float low_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }
inline float high_bf16(uint32_t bits) { return __uint_as_float(bits & 0xffff0000u); }

inline float of_e4m3(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15);
  const auto mantissa = static_cast<float>(bits & 7);
  if ((bits & 0x7f) == 0x7f) return NAN;
  const float size = exponent == 0 ? std::ldexp(mantissa, -9)
                                   : std::ldexp(8.0f + mantissa, exponent - 10);
  return bits & 0x80 ? -size : size;
}

inline uint32_t round_e4m3(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint32_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fmin(std::fabs(x), 448.0f);
  const int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return sign | (steps < 8 ? steps : steps + (static_cast<uint32_t>(exponent + 6) << 3));
}

inline uint32_t round_half(float x) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}

/// The instruction ignores the lower 13 bits.
inline uint32_t to_tf32(float x) { return __float_as_uint(x) + 0x1000u; }

/// Results that are not normal are zero.
inline float exp2_short(float x) {
  const float result = exp2f(x);
  return result < 0x1p-126f ? 0.0f : result;
}
inline float log2_short(float x) { return log2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }

// What factors of products are made of: `value(word, i)` is element i of a word.

struct Bf16 {
  static constexpr int kBytes = 2;
  static float value(uint32_t word, int i) { return i == 0 ? low_bf16(word) : high_bf16(word); }
};

struct Half {
  static constexpr int kBytes = 2;
  static float value(uint32_t word, int i) {
    return std::bit_cast<_Float16>(static_cast<uint16_t>(word >> 16 * i));
  }
};

struct E4m3 {
  static constexpr int kBytes = 1;
  static float value(uint32_t word, int i) {
    static const auto kValues = [] {
      std::array<float, 256> values;
      for (uint32_t bits = 0; bits < 256; ++bits) values[bits] = of_e4m3(bits);
      return values;
    }();
    return kValues[word >> 8 * i & 255];
  }
};

struct Tf32 {
  static constexpr int kBytes = 4;
  static float value(uint32_t word, int) { return __uint_as_float(word & ~0x1fffu); }
};

}  // namespace emulated
