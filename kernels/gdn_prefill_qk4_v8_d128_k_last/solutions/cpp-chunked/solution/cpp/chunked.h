// Long sequences: chunks of C tokens through matrix products.
//
// With S the state before the chunk, G_i the sum of log decays of its tokens up to i and
// beta_i their write strengths, the writes delta_i of the delta rule solve
//   delta_i = beta_i (v_i - e^{G_i} S k_i - sum_{j<i} e^{G_i - G_j} (k_i.k_j) delta_j)
// a unit lower triangular system with V right-hand sides, and then
//   output_i = scale (e^{G_i} S q_i + sum_{j<=i} e^{G_i - G_j} (q_i.k_j) delta_j)
//   S       <- e^{G_C} S + sum_j e^{G_C - G_j} delta_j k_j^T
// Every exponent is a difference of sums and at most 0: nothing overflows, and a product of
// decays that underflows is 0 rather than 0/0.
//
// The working state is transposed (K x V, in blocks of COLS columns) so that all products are
// "broadcast times row". Suffixes: C tokens of the chunk, K and V the widths, N columns of a block.

#pragma once

#include <algorithm>

#include "matmul.h"
#include "problem.h"

class Chunked {
 public:
  void run(const Problem& problem, const Task& task) {
    for (int i = 0; i < kHeads; ++i) load_state(problem, task, i);
    for (std::int64_t begin = task.begin; begin < task.end; begin += kChunk) {
      count_ = static_cast<int>(std::min<std::int64_t>(kChunk, task.end - begin));
      padded_ = (count_ + kTileRows - 1) / kTileRows * kTileRows;
      load_keys(problem, begin, task.key_head());
      for (int i = 0; i < kHeads; ++i) {
        const int head = task.head + i;
        weigh(problem, begin, head);
        for (int block = 0; block < kBlocks; ++block) {
          advance(problem, begin, head, block * kCols, state_[i][block]);
        }
      }
    }
    for (int i = 0; i < kHeads; ++i) store_state(problem, task, i);
  }

 private:
  static constexpr int kChunk = KOPT_CHUNK;
  static constexpr int kCols = KOPT_COLS;
  static constexpr int kHeads = KOPT_HEADS_PER_TASK;
  static constexpr int kBlocks = kWidth / kCols;
  static_assert(kChunk % kTileRows == 0 && kGroup % kHeads == 0 && kWidth % kCols == 0);

  void load_state(const Problem& problem, const Task& task, int i) {
    if (problem.state == nullptr) {
      std::fill_n(&state_[i][0][0], kStateSize, 0.0f);
      return;
    }
    const float* source = problem.state + state_at(task.sequence, task.head + i);
    for (int block = 0; block < kBlocks; ++block) {
      transpose(source + block * kCols * kWidth, kWidth, state_[i][block], kCols, kCols, kWidth);
    }
  }

  void store_state(const Problem& problem, const Task& task, int i) {
    float* target = problem.new_state + state_at(task.sequence, task.head + i);
    for (int block = 0; block < kBlocks; ++block) {
      transpose(state_[i][block], kCols, target + block * kCols * kWidth, kWidth, kWidth, kCols);
    }
  }

  // q, k and their mutual products; rows of padding are zero.
  void load_keys(const Problem& problem, std::int64_t begin, int key_head) {
    for (int t = 0; t < count_; ++t) {
      const Bf16* q = key_row(problem.q, begin + t, key_head);
      const Bf16* k = key_row(problem.k, begin + t, key_head);
      for (int i = 0; i < kWidth; ++i) q_CK_[t][i] = from_bf16(q[i]);
      for (int i = 0; i < kWidth; ++i) k_CK_[t][i] = from_bf16(k[i]);
    }
    std::fill_n(q_CK_[count_], (padded_ - count_) * kWidth, 0.0f);
    std::fill_n(k_CK_[count_], (kChunk - count_) * kWidth, 0.0f);
    transpose(&k_CK_[0][0], kWidth, &k_KC_[0][0], kChunk, kChunk, kWidth);
    const Operand q{&q_CK_[0][0], kWidth, 1};
    const Operand k{&k_CK_[0][0], kWidth, 1};
    multiply<kChunk, Start::kZero>(&kk_CC_[0][0], kChunk, k, &k_KC_[0][0], kChunk, padded_, kWidth);
    multiply<kChunk, Start::kZero>(&qk_CC_[0][0], kChunk, q, &k_KC_[0][0], kChunk, padded_, kWidth);
  }

  // Everything of a head that depends on its gates. Padding decays nothing and writes nothing.
  void weigh(const Problem& problem, std::int64_t begin, int head) {
    double sums[kChunk];
    const double rate = decay_rate(problem, head);
    double total = 0.0;
    for (int t = 0; t < padded_; ++t) {
      const bool real = t < count_;
      if (real) total += log_decay(problem, begin + t, head, rate);
      sums[t] = total;
      strength_[t] = real ? write_strength(problem, begin + t, head) : 0.0f;
    }
    for (int t = 0; t < padded_; ++t) {
      since_start_[t] = exp_of_nonpositive(static_cast<float>(sums[t]));
      until_end_[t] = exp_of_nonpositive(static_cast<float>(total - sums[t]));
    }
    const float scale = problem.scale;
    for (int i = 0; i < padded_; ++i) {
      const int width = (i / kTileRows + 1) * kTileRows;
      const float strength = -strength_[i];
      for (int j = 0; j < width; ++j) {
        const float decay = exp_of_nonpositive(static_cast<float>(sums[i] - sums[j]));
        solve_CC_[i][j] = j < i ? strength * decay * kk_CC_[i][j] : 0.0f;
        read_CC_[i][j] = j <= i ? scale * decay * qk_CC_[i][j] : 0.0f;
      }
    }
  }

  // One head, `kCols` columns of V starting at `column`.
  void advance(const Problem& problem, std::int64_t begin, int head, int column, float* state_KN) {
    const Operand q{&q_CK_[0][0], kWidth, 1};
    const Operand k{&k_CK_[0][0], kWidth, 1};
    multiply<kCols, Start::kZero>(&delta_CN_[0][0], kCols, k, state_KN, kCols, padded_, kWidth);
    multiply<kCols, Start::kZero>(&out_CN_[0][0], kCols, q, state_KN, kCols, padded_, kWidth);
    for (int t = 0; t < count_; ++t) {
      const Bf16* v = problem.v + value_row(begin + t, head) + column;
      const float strength = strength_[t];
      const float decay = since_start_[t];
      const float scaled = problem.scale * decay;
      for (int n = 0; n < kCols; ++n) {
        delta_CN_[t][n] = strength * (from_bf16(v[n]) - decay * delta_CN_[t][n]);
        out_CN_[t][n] *= scaled;
      }
    }
    std::fill_n(delta_CN_[count_], (padded_ - count_) * kCols, 0.0f);
    solve();
    for (int t = 0; t < count_; ++t) {
      Bf16* output = problem.output + value_row(begin + t, head) + column;
      for (int n = 0; n < kCols; ++n) output[n] = to_bf16(out_CN_[t][n]);
    }
    for (int t = 0; t < padded_; ++t) {
      const float decay = until_end_[t];
      for (int n = 0; n < kCols; ++n) delta_CN_[t][n] *= decay;
    }
    const Operand keys{&k_CK_[0][0], 1, kWidth};  // transposed
    multiply<kCols, Start::kScaled>(state_KN, kCols, keys, &delta_CN_[0][0], kCols, kWidth,
                                    padded_, since_start_[padded_ - 1]);
  }

  // The writes by forward substitution, TILE_ROWS tokens at a time, and the outputs with them.
  void solve() {
    for (int i = 0; i < padded_; i += kTileRows) {
      const Operand before{solve_CC_[i], kChunk, 1};
      multiply<kCols, Start::kKept>(delta_CN_[i], kCols, before, &delta_CN_[0][0], kCols, kTileRows,
                                    i);
      for (int r = i + 1; r < i + kTileRows; ++r) {
        for (int j = i; j < r; ++j) {
          const float factor = solve_CC_[r][j];
          for (int n = 0; n < kCols; ++n) delta_CN_[r][n] += factor * delta_CN_[j][n];
        }
      }
      const Operand until{read_CC_[i], kChunk, 1};
      multiply<kCols, Start::kKept>(out_CN_[i], kCols, until, &delta_CN_[0][0], kCols, kTileRows,
                                    i + kTileRows);
    }
  }

  int count_ = 0;   // tokens of the chunk
  int padded_ = 0;  // rounded up to whole tiles
  // One row more than a chunk has, so that the empty padding of a full chunk has an address.
  alignas(64) float q_CK_[kChunk + 1][kWidth];
  alignas(64) float k_CK_[kChunk + 1][kWidth];
  alignas(64) float k_KC_[kWidth][kChunk];
  alignas(64) float kk_CC_[kChunk][kChunk];
  alignas(64) float qk_CC_[kChunk][kChunk];
  alignas(64) float solve_CC_[kChunk][kChunk];  // -beta_i e^{G_i - G_j} (k_i.k_j) for j < i
  alignas(64) float read_CC_[kChunk][kChunk];   // scale e^{G_i - G_j} (q_i.k_j) for j <= i
  alignas(64) float delta_CN_[kChunk + 1][kCols];
  alignas(64) float out_CN_[kChunk + 1][kCols];
  alignas(64) float state_[kHeads][kBlocks][kWidth * kCols];
  float strength_[kChunk];
  float since_start_[kChunk];  // e^{G_i}
  float until_end_[kChunk];    // e^{G_C - G_i}
};
