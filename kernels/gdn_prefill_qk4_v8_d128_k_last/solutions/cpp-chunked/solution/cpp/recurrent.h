// Short sequences: token by token, four rows of the state at a time.
//
// A block of rows goes through all tokens before the next block is touched, so the state is read
// and written once in memory whatever the length. Per token, with S the state, g its decay and
// beta its write strength: both dots run on the old S (see cpp-recurrent of gdn_decode).

#pragma once

#include <algorithm>

#include "problem.h"

inline constexpr int kShort = KOPT_RECURRENT_BELOW;  // a sequence here has fewer tokens

class Recurrent {
 public:
  void run(const Problem& problem, const Task& task) {
    length_ = static_cast<int>(task.end - task.begin);
    for (int t = 0; t < length_; ++t) {
      const Bf16* q = key_row(problem.q, task.begin + t, task.key_head());
      const Bf16* k = key_row(problem.k, task.begin + t, task.key_head());
      q_dot_k_[t] = 0.0f;
      for (int i = 0; i < kWidth; ++i) {
        q_[t][i] = from_bf16(q[i]);
        k_[t][i] = from_bf16(k[i]);
        q_dot_k_[t] += q_[t][i] * k_[t][i];
      }
    }
    for (int head = task.head; head < task.head + KOPT_HEADS_PER_TASK; ++head) {
      const double rate = decay_rate(problem, head);
      for (int t = 0; t < length_; ++t) {
        const double log_g = log_decay(problem, task.begin + t, head, rate);
        decay_[t] = static_cast<float>(std::exp(log_g));
        strength_[t] = write_strength(problem, task.begin + t, head);
      }
      const std::int64_t at = state_at(task.sequence, head);
      const float* old_state = problem.state ? problem.state + at : nullptr;
      for (int row = 0; row < kWidth; row += kRows) {
        advance(problem, task, head, row, old_state, problem.new_state + at);
      }
    }
  }

 private:
  static constexpr int kRows = 4;
  static constexpr int kVectors = kWidth / kLanes;

  void advance(const Problem& problem, const Task& task, int head, int row, const float* old_state,
               float* new_state) {
    float* block = rows_;
    if (old_state == nullptr) {
      std::fill_n(block, kRows * kWidth, 0.0f);
    } else {
      std::copy_n(old_state + row * kWidth, kRows * kWidth, block);
    }
    for (int t = 0; t < length_; ++t) {
      const std::int64_t at = value_row(task.begin + t, head) + row;
      step(block, t, problem.scale, problem.v + at, problem.output + at);
    }
    std::copy_n(block, kRows * kWidth, new_state + row * kWidth);
  }

  void step(float* block, int t, float scale, const Bf16* v, Bf16* output) {
    Vec sum_k[kRows] = {};
    Vec sum_q[kRows] = {};
    for (int c = 0; c < kVectors; ++c) {
      const Vec k = load(k_[t] + c * kLanes);
      const Vec q = load(q_[t] + c * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vec part = load(block + r * kWidth + c * kLanes);
        sum_k[r] += part * k;
        sum_q[r] += part * q;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const float along_k = decay_[t] * sum<kLanes>(sum_k[r]);
      const float along_q = decay_[t] * sum<kLanes>(sum_q[r]);
      const float delta = strength_[t] * (from_bf16(v[r]) - along_k);
      output[r] = to_bf16(scale * (along_q + q_dot_k_[t] * delta));
      for (int c = 0; c < kVectors; ++c) {
        float* part = block + r * kWidth + c * kLanes;
        store(part, load(part) * decay_[t] + load(k_[t] + c * kLanes) * delta);
      }
    }
  }

  int length_ = 0;
  alignas(64) float q_[kShort][kWidth];
  alignas(64) float k_[kShort][kWidth];
  alignas(64) float rows_[kRows * kWidth];
  float q_dot_k_[kShort];
  float decay_[kShort];
  float strength_[kShort];
};
