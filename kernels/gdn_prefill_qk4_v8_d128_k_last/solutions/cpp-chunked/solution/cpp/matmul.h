// Products of small row-major matrices, blocked for registers.
//
// A tile of TILE_ROWS x TILE_VECTORS vectors of the result stays in registers while a column of
// A (broadcast) meets a row of B. Columns of the result are the outer loop, so the panel of B
// that a column of tiles reads stays in L1.

#pragma once

#include <algorithm>

#include "vectors.h"

inline constexpr int kTileRows = KOPT_TILE_ROWS;

// What is in the result before the product is added.
enum class Start { kZero, kKept, kScaled };

// A of any strides: element (r, d) is at data[r * row_stride + d * depth_stride].
struct Operand {
  const float* data;
  int row_stride;
  int depth_stride;
};

template <Start kStart, int kVectors>
KOPT_INLINE void multiply_tile(float* c, int c_stride, const float* a, int row_stride,
                               int depth_stride, const float* b, int b_stride, int depth,
                               float factor) {
  Vec tile[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int n = 0; n < kVectors; ++n) {
      if constexpr (kStart == Start::kZero) {
        tile[r][n] = Vec{};
      } else {
        tile[r][n] = load(c + r * c_stride + n * kLanes);
        if constexpr (kStart == Start::kScaled) tile[r][n] *= factor;
      }
    }
  }
  for (int d = 0; d < depth; ++d) {
    Vec row[kVectors];
    for (int n = 0; n < kVectors; ++n) row[n] = load(b + d * b_stride + n * kLanes);
    for (int r = 0; r < kTileRows; ++r) {
      const float value = a[r * row_stride + d * depth_stride];
      for (int n = 0; n < kVectors; ++n) tile[r][n] += row[n] * value;
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int n = 0; n < kVectors; ++n) store(c + r * c_stride + n * kLanes, tile[r][n]);
  }
}

// C (rows x kCols) = start + A (rows x depth) B (depth x kCols); rows is a multiple of TILE_ROWS.
template <int kCols, Start kStart>
void multiply(float* c, int c_stride, const Operand& a, const float* b, int b_stride, int rows,
              int depth, float factor = 1.0f) {
  constexpr int kVectors = std::min(KOPT_TILE_VECTORS, kCols / kLanes);
  static_assert(kCols % (kVectors * kLanes) == 0);
  for (int n = 0; n < kCols; n += kVectors * kLanes) {
    for (int r = 0; r < rows; r += kTileRows) {
      multiply_tile<kStart, kVectors>(c + r * c_stride + n, c_stride, a.data + r * a.row_stride,
                                      a.row_stride, a.depth_stride, b + n, b_stride, depth,
                                      factor);
    }
  }
}
