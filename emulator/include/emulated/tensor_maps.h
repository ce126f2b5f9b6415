// Copies of boxes of a tensor. Maps are of bytes: 128 of them are a row of a box, swizzled.
#pragma once

#include <array>

#include "copies.h"

namespace emulated {

constexpr int kMostDims = 5;

struct TensorMap {
  char* data;
  int dims;
  std::array<int64_t, kMostDims> extents;  // the innermost first, which is of bytes
  std::array<int64_t, kMostDims> strides;  // in bytes
  std::array<int, kMostDims> box;
  bool may_reach_out;  // else a box beyond the tensor is taken for a mistake

  int64_t box_bytes() const {
    int64_t bytes = 1;
    for (const int extent : box) bytes *= extent;
    return bytes;
  }
};

/// Strides are those of the second dimension and on.
template <int kDims>
cudaError_t encode(TensorMap& map, const void* data, const int64_t (&extents)[kDims],
                   const int64_t (&strides)[kDims - 1], const int (&box)[kDims],
                   bool may_reach_out) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0 || box[0] != 128) return cudaErrorInvalidValue;
  map = {static_cast<char*>(const_cast<void*>(data)), kDims, {1, 1, 1, 1, 1}, {}, {1, 1, 1, 1, 1},
         may_reach_out};
  for (int i = 0; i < kDims; ++i) {
    if (extents[i] <= 0 || box[i] <= 0 || box[i] > 256) return cudaErrorInvalidValue;
    if (i > 0 && strides[i - 1] % 16 != 0) return cudaErrorInvalidValue;
    map.extents[i] = extents[i];
    map.strides[i] = i == 0 ? 1 : strides[i - 1];
    map.box[i] = box[i];
  }
  return cudaSuccess;
}

using Corner = std::array<int, kMostDims>;

/// Where a byte of the tensor is; null beyond its ends.
inline char* element_of(const TensorMap& map, const Corner& at) {
  int64_t place = 0;
  for (int i = 0; i < kMostDims; ++i) {
    if (at[i] < 0 || at[i] >= map.extents[i]) return nullptr;
    place += at[i] * map.strides[i];
  }
  return map.data + place;
}

/// `copy(in shared memory, in the tensor or null)` for each 16 bytes of a box.
template <class Copy>
void for_box(uint32_t box, const TensorMap& map, const Corner& corner, const Copy& copy) {
  if (box % 1024 != 0) fibers::fail("misaligned box");
  const int64_t bytes = map.box_bytes();
  for (int64_t piece = 0; piece < bytes; piece += 16) {
    Corner at = corner;
    int64_t rest = piece;
    for (int i = 0; i < kMostDims; ++i) {
      at[i] += static_cast<int>(rest % map.box[i]);
      rest /= map.box[i];
    }
    char* const global = element_of(map, at);
    if (global == nullptr && !map.may_reach_out) fibers::fail("a box reaches out of its tensor");
    const auto address = static_cast<uint32_t>(box + piece);
    copy(fibers::shared_at(swizzled(address), 16, 16), global);
  }
}

/// Arrives some time; zeros come from beyond the tensor.
inline void load_box(uint32_t target, const TensorMap& map, const Corner& corner,
                     uint32_t barrier) {
  struct Piece {
    char* shared;
    const char* global;
  };
  std::vector<Piece> pieces;
  for_box(target, map, corner, [&](char* shared, const char* global) {
    if (global != nullptr) fibers::check_read(global, 16);
    pieces.push_back({shared, global});
  });
  Barrier& told = barrier_at(barrier);
  fibers::put_off(target, [pieces = std::move(pieces), &told] {
    for (const Piece& piece : pieces) {
      if (piece.global == nullptr) {
        memset(piece.shared, 0, 16);
      } else {
        memcpy(piece.shared, piece.global, 16);
      }
    }
    report_expected(told, static_cast<uint32_t>(pieces.size() * 16));
  });
}

/// Done at once; nothing is stored beyond the tensor.
inline void store_box_at(const TensorMap& map, const Corner& corner, uint32_t source) {
  for_box(source, map, corner, [](const char* shared, char* global) {
    if (global != nullptr) memcpy(global, shared, 16);
  });
}

inline void prefetch_map(const TensorMap&) {}

}  // namespace emulated
