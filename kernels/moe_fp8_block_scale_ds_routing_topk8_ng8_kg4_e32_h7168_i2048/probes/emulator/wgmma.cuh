// Stands in for the solution's wgmma.cuh: the same functions for fibers on a CPU. Products are done
// no sooner than they are waited for.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "ptx.cuh"
#include "tensor_map.cuh"

#define MOE_WARPGROUPS 1

namespace moe {

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void drop_registers() {}

inline uint64_t rows_at(uint32_t address) {
  if (address % 1024 != 0) fibers::fail("misaligned factor");
  return uint64_t{address} << 16;  // below: units of 16 bytes, as in a descriptor
}

struct GroupProduct {
  float* c;
  int columns;
  uint64_t a;
  uint64_t b;
  int add;
};
inline std::map<unsigned, std::deque<std::vector<GroupProduct>>> products;
inline std::map<unsigned, std::vector<GroupProduct>> open_products;

inline void products_begin() {}

inline void products_commit() {
  products[fibers::thread()].push_back(open_products[fibers::thread()]);
  open_products[fibers::thread()].clear();
}

/// 32 elements of a row.
inline void row_of(uint64_t factor, int row, float (&x)[32]) {
  static const auto kValues = [] {
    std::vector<float> all(256);
    for (int i = 0; i < 256; ++i) all[i] = value_fp8(static_cast<uint8_t>(i));
    return all;
  }();
  const auto base = static_cast<uint32_t>(factor >> 16) + static_cast<uint32_t>(factor & 0xffff) * 16;
  for (int piece = 0; piece < 2; ++piece) {
    uint32_t address = base + row * 128 + piece * 16;
    address ^= address >> 3 & 0x70;  // counted from a multiple of 1024, as `origin` is
    const char* bytes = at(address, 16);
    for (int k = 0; k < 16; ++k) x[piece * 16 + k] = kValues[static_cast<uint8_t>(bytes[k])];
  }
}

inline void multiply_now(GroupProduct& product) {
  fibers::meet_warp(&product, [](void** lanes) {
    const auto& first = *static_cast<GroupProduct*>(lanes[0]);
    const int above = fibers::thread() / 32 % 4 * 16;
    float a[16][32];
    for (int row = 0; row < 16; ++row) row_of(first.a, above + row, a[row]);
    for (int n = 0; n < first.columns; ++n) {
      float b[32];
      row_of(first.b, n, b);
      for (int row = 0; row < 16; ++row) {
        auto& x = *static_cast<GroupProduct*>(lanes[row % 8 * 4 + n % 8 / 2]);
        float& c = x.c[n / 8 * 4 + row / 8 * 2 + n % 2];
        float sum = 0.0f;
        for (int k = 0; k < 32; ++k) sum += a[row][k] * b[k];
        c = x.add ? c + sum : sum;
      }
    }
  });
}

template <int kLeft>
void products_wait() {
  auto& groups = products[fibers::thread()];
  fibers::give_way();
  while (static_cast<int>(groups.size()) > kLeft) {
    for (GroupProduct& product : groups.front()) multiply_now(product);
    groups.pop_front();
  }
}

template <int kAll>
void results_ready(float (&)[kAll]) {}

template <int kAll>
void multiply(float (&c)[kAll], uint64_t a, uint64_t b, int add) {
  open_products[fibers::thread()].push_back({c, 2 * kAll, a, b, add});
}

/// Done at once.
inline void copy_any_box(uint32_t target, const TensorMap& map, const int (&from)[5],
                         uint32_t barrier) {
  if (target % 1024 != 0) fibers::fail("misaligned box");
  uint32_t bytes = 0;
  uint32_t x[5];
  for (x[4] = 0; x[4] < map.box[4]; ++x[4])
    for (x[3] = 0; x[3] < map.box[3]; ++x[3])
      for (x[2] = 0; x[2] < map.box[2]; ++x[2])
        for (x[1] = 0; x[1] < map.box[1]; ++x[1])
          for (x[0] = 0; x[0] < map.box[0]; x[0] += 16) {
            size_t place = 0;
            for (int i = 0; i < 5; ++i) {
              const uint64_t index = from[i] + x[i];
              if (from[i] < 0 || index >= map.extents[i]) fibers::fail("a box reaches out");
              place += index * map.strides[i];
            }
            uint32_t address = target + bytes;
            address ^= address >> 3 & 0x70;
            fibers::check_read(map.data + place, 16);
            memcpy(at(address, 16), map.data + place, 16);
            bytes += 16;
          }
  barrier_report(barrier, bytes);
}

inline void copy_box(uint32_t target, const TensorMap& map, int x0, int x1, int x2, int x3, int x4,
                     uint32_t barrier) {
  if (map.dims != 5) fibers::fail("another number of dimensions");
  copy_any_box(target, map, {x0, x1, x2, x3, x4}, barrier);
}
inline void copy_box(uint32_t target, const TensorMap& map, int x0, int x1, uint32_t barrier) {
  if (map.dims != 2) fibers::fail("another number of dimensions");
  copy_any_box(target, map, {x0, x1, 0, 0, 0}, barrier);
}
inline void prefetch_map(const TensorMap&) {}

}  // namespace moe
