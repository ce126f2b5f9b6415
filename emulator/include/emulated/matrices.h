// Matrices of 8 x 8 elements of 16 bits, and products of a warp.
#pragma once

#include "memory.h"
#include "numbers.h"

namespace emulated {

struct MatrixMove {
  uint32_t address;
  uint32_t* words;
  bool transposed;
};

/// `at(row, column)` is what a lane's words hold of a matrix: two of a row, or of a column.
template <class At>
void for_lane(void** lanes, int matrix, int i, const At& at) {
  const auto* lane = static_cast<const MatrixMove*>(lanes[i]);
  const int g = i / 4;
  const int t = i % 4 * 2;
  if (lane->transposed) {
    at(lane->words[matrix], t, g, t + 1, g);
  } else {
    at(lane->words[matrix], g, t, g, t + 1);
  }
}

inline char* row_of_matrix(void** lanes, int matrix, int row) {
  return fibers::shared_at(static_cast<const MatrixMove*>(lanes[matrix * 8 + row])->address, 16, 16);
}

inline void load(uint32_t (&r)[4], uint32_t address, bool transposed) {
  MatrixMove own{address, r, transposed};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[8][8];
      for (int row = 0; row < 8; ++row) memcpy(x[row], row_of_matrix(lanes, matrix, row), 16);
      for (int i = 0; i < 32; ++i) {
        for_lane(lanes, matrix, i, [&](uint32_t& word, int row, int column, int row2, int column2) {
          word = x[row][column] | static_cast<uint32_t>(x[row2][column2]) << 16;
        });
      }
    }
  });
}

inline void store(uint32_t address, const uint32_t (&r)[4], bool transposed) {
  MatrixMove own{address, const_cast<uint32_t*>(r), transposed};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[8][8];
      for (int i = 0; i < 32; ++i) {
        for_lane(lanes, matrix, i, [&](uint32_t& word, int row, int column, int row2, int column2) {
          x[row][column] = static_cast<uint16_t>(word);
          x[row2][column2] = static_cast<uint16_t>(word >> 16);
        });
      }
      for (int row = 0; row < 8; ++row) memcpy(row_of_matrix(lanes, matrix, row), x[row], 16);
    }
  });
}

inline void load_matrices(uint32_t (&r)[4], uint32_t address) { load(r, address, false); }
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) { load(r, address, true); }
inline void store_matrices(uint32_t address, const uint32_t (&r)[4]) { store(address, r, false); }
inline void store_matrices_transposed(uint32_t address, const uint32_t (&r)[4]) {
  store(address, r, true);
}

/// The transposed matrix that the warp holds.
inline uint32_t transpose(uint32_t matrix) {
  struct Lane {
    uint32_t matrix;
    uint32_t result;
  } own{matrix, 0};
  fibers::meet_warp(&own, [](void** lanes) {
    uint16_t x[8][8];
    for (int i = 0; i < 32; ++i) {
      memcpy(&x[i / 4][i % 4 * 2], &static_cast<Lane*>(lanes[i])->matrix, 4);
    }
    for (int i = 0; i < 32; ++i) {
      const uint32_t low = x[i % 4 * 2][i / 4];
      const uint32_t high = x[i % 4 * 2 + 1][i / 4];
      static_cast<Lane*>(lanes[i])->result = low | high << 16;
    }
  });
  return own.result;
}

/// Elements that a product sums over: 32 bytes of them.
template <class Element>
constexpr int kDepth = 32 / Element::kBytes;

/// What lane i has of a first factor with 16 rows.
template <class Element>
void spread_first(const uint32_t* words, int i, float (*a)[kDepth<Element>]) {
  constexpr int kOfWord = 4 / Element::kBytes;
  for (int j = 0; j < 4; ++j) {
    float* x = a[i / 4 + j % 2 * 8] + i % 4 * kOfWord + j / 2 * (kDepth<Element> / 2);
    for (int k = 0; k < kOfWord; ++k) x[k] = Element::value(words[j], k);
  }
}

struct Product {
  float* c;
  uint32_t a[4];
  uint32_t b[2];
};

template <class Element>
void multiply_lanes(void** lanes) {
  constexpr int kOfWord = 4 / Element::kBytes;
  float a[16][kDepth<Element>];
  float b[kDepth<Element>][8];
  for (int i = 0; i < 32; ++i) {
    const auto& x = *static_cast<const Product*>(lanes[i]);
    spread_first<Element>(x.a, i, a);
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < kOfWord; ++k) {
        b[i % 4 * kOfWord + j * (kDepth<Element> / 2) + k][i / 4] = Element::value(x.b[j], k);
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sums[8] = {};
    for (int k = 0; k < kDepth<Element>; ++k) {
      for (int n = 0; n < 8; ++n) sums[n] += a[row][k] * b[k][n];
    }
    for (int n = 0; n < 8; ++n) {
      static_cast<Product*>(lanes[row % 8 * 4 + n / 2])->c[row / 8 * 2 + n % 2] += sums[n];
    }
  }
}

/// c (16 x 8) += a b, in the order that mma.sync has.
template <class Element>
void multiply_warp(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Product own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  fibers::meet_warp(&own, multiply_lanes<Element>);
}

}  // namespace emulated
