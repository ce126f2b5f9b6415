// Products of warpgroups, done no sooner than they are waited for. Each warp does its 16 rows.
#pragma once

#include "matrices.h"

namespace emulated {

// A factor in shared memory, as in a descriptor: bits 0 to 13 are its address and bits 16 to 29 a
// stride, in 16 bytes each. Stride 1 stands for rows whose elements are summed over.

inline uint64_t rows_at(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16;
}

/// Rows of consecutive columns, the second 64 `stride` bytes on.
inline uint64_t columns_at(uint32_t address, uint32_t stride) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(stride >> 4) << 16;
}

inline uint64_t moved(uint64_t factor, int bytes) { return factor + static_cast<uint64_t>(bytes >> 4); }

/// The address in the running thread's block.
inline uint32_t address_of(uint64_t factor) {
  return fibers::address_in(fibers::cluster_rank(), static_cast<uint32_t>(factor & 0x3fff) << 4);
}

/// `x[k * count + n]` for columns `first` on of a second factor.
template <class Element>
void read_factor(uint64_t factor, int first, int count, float* x) {
  constexpr int kOfPiece = 16 / Element::kBytes;
  constexpr int kOfWord = 4 / Element::kBytes;
  const uint32_t base = address_of(factor);
  const auto stride = static_cast<uint32_t>(factor >> 16 & 0x3fff) << 4;
  const auto read = [&](uint32_t address, int from, int step) {
    uint32_t words[4];
    memcpy(words, fibers::shared_at(swizzled(address), 16, 16), 16);
    for (int i = 0; i < kOfPiece; ++i) {
      x[from + i * step] = Element::value(words[i / kOfWord], i % kOfWord);
    }
  };
  if (stride == 16) {
    for (int n = 0; n < count; ++n) {
      const uint32_t row = base + static_cast<uint32_t>(first + n) * 128;
      for (int piece = 0; piece < 2; ++piece) {
        read(row + static_cast<uint32_t>(piece) * 16, piece * kOfPiece * count + n, count);
      }
    }
    return;
  }
  if (Element::kBytes != 2) fibers::fail("such elements lie along what is summed over");
  for (int k = 0; k < kDepth<Element>; ++k) {
    for (int n = 0; n < count; n += kOfPiece) {
      const auto column = static_cast<uint32_t>(first + n);
      read(base + column / 64 * stride + static_cast<uint32_t>(k) * 128 + column % 64 * 2,
           k * count + n, 1);
    }
  }
}

struct GroupProduct {
  float* c;
  int columns;
  uint32_t a[4];
  uint64_t shared_a;  // in place of `a` unless 0
  uint64_t b;
  bool add;
};

constexpr int kMostColumns = 256;

template <class Element>
void multiply_group_lanes(void** lanes) {
  constexpr int kRows = 16;
  static float a[kRows][kDepth<Element>];  // static, since stacks of fibers are small
  static float columns[kRows * kDepth<Element>];
  static float b[kDepth<Element> * kMostColumns];
  const auto& first = *static_cast<const GroupProduct*>(lanes[0]);
  if (first.shared_a == 0) {
    for (int i = 0; i < 32; ++i) {
      spread_first<Element>(static_cast<const GroupProduct*>(lanes[i])->a, i, a);
    }
  } else {
    read_factor<Element>(first.shared_a, static_cast<int>(fibers::thread() / 32 % 4) * kRows, kRows,
                         columns);
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < kDepth<Element>; ++k) a[row][k] = columns[k * kRows + row];
    }
  }
  const int count = first.columns;
  read_factor<Element>(first.b, 0, count, b);
  for (int row = 0; row < kRows; ++row) {
    for (int n = 0; n < count; n += 8) {
      float sums[8] = {};
      for (int k = 0; k < kDepth<Element>; ++k) {
        for (int i = 0; i < 8; ++i) sums[i] += a[row][k] * b[k * count + n + i];
      }
      for (int i = 0; i < 8; ++i) {
        const auto& lane = *static_cast<const GroupProduct*>(lanes[row % 8 * 4 + i / 2]);
        float& c = lane.c[n / 8 * 4 + row / 8 * 2 + i % 2];
        c = lane.add ? c + sums[i] : sums[i];
      }
    }
  }
}

template <class Element>
void start_product(const GroupProduct& product) {
  fibers::start(fibers::Queue::kProducts, [own = GroupProduct(product)]() mutable {
    fibers::meet_warp(&own, multiply_group_lanes<Element>);
  });
}

/// c (64 x 2 kAll) = a b, plus itself if `add`; registers of `a` as in mma.sync.
template <class Element, int kAll>
void multiply_group(float (&c)[kAll], const uint32_t (&a)[4], uint64_t b, int add) {
  start_product<Element>({c, 2 * kAll, {a[0], a[1], a[2], a[3]}, 0, b, add != 0});
}
template <class Element, int kAll>
void multiply_group(float (&c)[kAll], uint64_t a, uint64_t b, int add) {
  start_product<Element>({c, 2 * kAll, {}, a, b, add != 0});
}

inline void products_begin() {}
inline void products_commit() { fibers::close_group(fibers::Queue::kProducts); }

template <int kLeft>
void products_wait() {
  fibers::give_way();
  fibers::finish_groups(fibers::Queue::kProducts, kLeft);
}

template <int kAll>
void results_ready(float (&)[kAll]) {}

}  // namespace emulated
