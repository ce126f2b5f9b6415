// Stands in for the solution's wgmma.cuh: the same functions for fibers on a CPU. Products are done
// no sooner than they are waited for.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "maps.cuh"
#include "ptx.cuh"

#define GDN_WARPGROUPS 1

namespace gdn {

constexpr int kAtomBytes = 8 * 128;

inline int uniform(int x) {
  struct Lane {
    int value;
    int result;
  } own{x, 0};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int i = 0; i < 32; ++i) {
      static_cast<Lane*>(lanes[i])->result = static_cast<Lane*>(lanes[0])->value;
    }
  });
  if (own.result != x) fibers::fail("lanes differ");
  return x;
}

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void drop_registers() {}

/// Address, bytes between 64 columns, and whether elements of a row are summed over.
inline uint64_t rows_at(uint32_t address) { return static_cast<uint64_t>(address) << 28 | 1; }
inline uint64_t columns_at(uint32_t address, uint32_t stride) {
  return static_cast<uint64_t>(address) << 28 | static_cast<uint64_t>(stride);
}
inline uint64_t moved(uint64_t factor, int bytes) {
  return factor + (static_cast<uint64_t>(bytes) << 28);
}

/// Element of a second factor: summed index k, column n.
inline float element(uint64_t factor, int k, int n) {
  const auto base = static_cast<uint32_t>(factor >> 28);
  const auto stride = static_cast<uint32_t>(factor & 0xfffffff);
  uint32_t address = stride == 1 ? base + n / 8 * kAtomBytes + n % 8 * 128 + k * 2
                                 : base + n / 64 * stride + k / 8 * kAtomBytes + k % 8 * 128 +
                                       n % 64 * 2;
  address ^= address >> 3 & 0x70;  // counted from a multiple of 1024, as `origin` is
  uint16_t bits;
  memcpy(&bits, at(address, 2), 2);
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

struct GroupProduct {
  float* c;
  int columns;
  uint32_t a[4];
  uint64_t b;
  int add;
  uint64_t shared_a;  // in place of `a` unless 0
};
inline std::map<unsigned, std::deque<std::vector<GroupProduct>>> products;
inline std::map<unsigned, std::vector<GroupProduct>> open_products;

inline void products_begin() {}

inline void products_commit() {
  products[fibers::thread()].push_back(open_products[fibers::thread()]);
  open_products[fibers::thread()].clear();
}

inline void multiply_now(GroupProduct& product) {
  fibers::meet_warp(&product, [](void** lanes) {
    float a[16][16];
    for (int i = 0; i < 32; ++i) {
      const auto& x = *static_cast<GroupProduct*>(lanes[i]);
      for (int j = 0; j < 4; ++j) {
        float* pair = a[i / 4 + j % 2 * 8] + 2 * (i % 4) + j / 2 * 8;
        pair[0] = low_bf16(x.a[j]);
        pair[1] = high_bf16(x.a[j]);
      }
    }
    const auto& first = *static_cast<GroupProduct*>(lanes[0]);
    if (first.shared_a != 0) {
      const int above = fibers::thread() / 32 % 4 * 16;
      for (int row = 0; row < 16; ++row) {
        for (int k = 0; k < 16; ++k) a[row][k] = element(first.shared_a, k, above + row);
      }
    }
    for (int n = 0; n < first.columns; ++n) {
      float b[16];
      for (int k = 0; k < 16; ++k) b[k] = element(first.b, k, n);
      for (int row = 0; row < 16; ++row) {
        auto& x = *static_cast<GroupProduct*>(lanes[row % 8 * 4 + n % 8 / 2]);
        float& c = x.c[n / 8 * 4 + row / 8 * 2 + n % 2];
        float sum = 0.0f;
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k];
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

inline void multiply_64(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  open_products[fibers::thread()].push_back({c, 64, {a[0], a[1], a[2], a[3]}, b, add, 0});
}

inline void multiply_128(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  open_products[fibers::thread()].push_back({c, 128, {a[0], a[1], a[2], a[3]}, b, add, 0});
}

inline void multiply_shared_64(float (&c)[32], uint64_t a, uint64_t b, int add) {
  open_products[fibers::thread()].push_back({c, 64, {}, b, add, a});
}

inline void multiply_shared_128(float (&c)[64], uint64_t a, uint64_t b, int add) {
  open_products[fibers::thread()].push_back({c, 128, {}, b, add, a});
}

struct MatrixStore {
  uint32_t address;
  const uint32_t* words;
  bool transposed;
};

inline void store(uint32_t address, const uint32_t (&r)[4], bool transposed) {
  MatrixStore own{address, r, transposed};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[8][8];
      for (int i = 0; i < 32; ++i) {
        const auto* lane = static_cast<MatrixStore*>(lanes[i]);
        const int g = i / 4;
        const int t = i % 4 * 2;
        (lane->transposed ? x[t][g] : x[g][t]) = static_cast<uint16_t>(lane->words[matrix]);
        (lane->transposed ? x[t + 1][g] : x[g][t + 1]) =
            static_cast<uint16_t>(lane->words[matrix] >> 16);
      }
      for (int row = 0; row < 8; ++row) {
        memcpy(at(static_cast<MatrixStore*>(lanes[matrix * 8 + row])->address, 16), x[row], 16);
      }
    }
  });
}

inline void store_matrices(uint32_t address, const uint32_t (&r)[4]) { store(address, r, false); }
inline void store_matrices_transposed(uint32_t address, const uint32_t (&r)[4]) {
  store(address, r, true);
}

inline void order_before_async() {}
inline void barriers_visible() {}

/// Bytes that barriers still expect: a barrier that does has one arrival less.
inline std::map<uint32_t, int64_t> expected_bytes;

inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  if (expected_bytes[barrier] != 0) fibers::fail("bytes of two phases");
  expected_bytes[barrier] = bytes;
}

inline void barrier_report(uint32_t barrier, uint32_t bytes) {
  int64_t& rest = expected_bytes[barrier];
  rest -= bytes;
  if (rest < 0) fibers::fail("more bytes than expected");
  if (rest == 0) barrier_arrive(barrier);
}

inline void copy_bulk(uint32_t target, const void* source, uint32_t bytes, uint32_t barrier) {
  if (bytes % 16 != 0) fibers::fail("bytes of a bulk copy");
  fibers::check_read(source, bytes);
  memcpy(at(target, 16), source, bytes);
  barrier_report(barrier, bytes);
}

/// For each 16 bytes of 64 rows of 128 bytes: there in shared memory, and there in the tensor, or
/// null beyond its end.
template <class F>
void for_box(uint32_t box, const TensorMap& map, int column, int row, const F& copy) {
  if (box % 1024 != 0) fibers::fail("misaligned box");
  for (int i = 0; i < 64; ++i) {
    for (int piece = 0; piece < 8; ++piece) {
      uint32_t address = box + i * 128 + piece * 16;
      address ^= address >> 3 & 0x70;
      const size_t first = (static_cast<size_t>(row + i) * map.columns + column) * map.bytes;
      copy(at(address, 16), row + i < map.rows ? map.data + first + piece * 16 : nullptr);
    }
  }
}

inline void copy_box(uint32_t target, const TensorMap& map, int column, int row,
                     uint32_t barrier) {
  for_box(target, map, column, row, [](char* shared, const char* global) {
    if (global == nullptr) {
      memset(shared, 0, 16);
    } else {
      memcpy(shared, global, 16);
    }
  });
  barrier_report(barrier, 64 * 128);
}

inline void store_box(const TensorMap& map, int column, int row, uint32_t source) {
  for_box(source, map, column, row, [](const char* shared, char* global) {
    if (global != nullptr) memcpy(global, shared, 16);
  });
}

inline void store_bulk(void* target, uint32_t source, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(target) % 16 != 0) fibers::fail("misaligned bulk store");
  memcpy(target, at(source, 16), bytes);
}
inline void stores_wait() {}
inline void stores_read() {}

inline void store_shared_pair(uint32_t address, float x, float y) {
  const float pair[2] = {x, y};
  memcpy(at(address, 8), pair, 8);
}

inline void flag_raise(unsigned* flag, unsigned readers) {
  if (*flag != 0) fibers::fail("a flag is up already");
  *flag = readers;
  fibers::progress();
}

inline void flag_take(unsigned* flag) {
  while (*flag == 0) fibers::give_way();
  --*flag;
}

}  // namespace gdn
