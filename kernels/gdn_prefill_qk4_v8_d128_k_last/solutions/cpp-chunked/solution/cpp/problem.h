// The call's arguments, and one unit of its work.
//
// Shapes (T tokens of all sequences, N sequences, 4 query/key heads, H = 8 value heads, V = K = 128):
//   q, k (T, 4, K) bf16; v, output (T, H, V) bf16; a, b (T, H) bf16; A_log, dt_bias (H) f32;
//   state, new_state (N, H, V, K) f32; cu_seqlens (N + 1) i64.

#pragma once

#include <cstdint>

#include "vectors.h"

inline constexpr int kKeyHeads = 4;
inline constexpr int kValueHeads = 8;
inline constexpr int kGroup = kValueHeads / kKeyHeads;  // value heads of a key head
inline constexpr int kWidth = 128;                      // V and K
inline constexpr std::int64_t kStateSize = kWidth * kWidth;

struct Problem {
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  const float* state;  // null stands for zeros
  const float* a_log;
  const Bf16* a;
  const float* dt_bias;
  const Bf16* b;
  const std::int64_t* cu_seqlens;
  float scale;
  Bf16* output;
  float* new_state;
  std::int64_t tokens;
  std::int64_t sequences;
};

// Neighbouring value heads of one key head in one sequence.
struct Task {
  std::int64_t sequence;
  std::int64_t begin;  // its first token
  std::int64_t end;
  int head;  // the first of HEADS_PER_TASK value heads

  int key_head() const { return head / kGroup; }
};

KOPT_INLINE const Bf16* key_row(const Bf16* base, std::int64_t token, int key_head) {
  return base + (token * kKeyHeads + key_head) * kWidth;
}

KOPT_INLINE std::int64_t value_row(std::int64_t token, int head) {
  return (token * kValueHeads + head) * kWidth;
}

KOPT_INLINE std::int64_t state_at(std::int64_t sequence, int head) {
  return (sequence * kValueHeads + head) * kStateSize;
}

// Logarithm of the decay of one token and head: -exp(A_log) softplus(a + dt_bias), at most 0.
// Bounded, because differences of sums of it are formed; exp(-1e4) is 0 anyway.
inline double log_decay(const Problem& problem, std::int64_t token, int head, double rate) {
  const float step = from_bf16(problem.a[token * kValueHeads + head]) + problem.dt_bias[head];
  const double value = -rate * softplus(step);
  return value < -1e4 ? -1e4 : value;
}

inline double decay_rate(const Problem& problem, int head) {
  return std::exp(static_cast<double>(problem.a_log[head]));
}

inline float write_strength(const Problem& problem, std::int64_t token, int head) {
  return sigmoid(from_bf16(problem.b[token * kValueHeads + head]));
}
