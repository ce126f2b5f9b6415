// Stands in for the ptx.cuh of cuda-chunked: the same functions for fibers on a CPU.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "cuda_runtime.h"

namespace gdn {

extern char origin[];  // shared addresses are distances from here, a multiple of 1024

[[noreturn]] inline void fail(const char* what) {
  printf("thread %u of block %u: %s\n", warps::thread(), warps::block(), what);
  fflush(stdout);
  abort();
}

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - origin);
}

inline char* at(uint32_t address, int alignment) {
  char* pointer = origin + static_cast<int32_t>(address);
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) fail("misaligned shared access");
  return pointer;
}

inline uint32_t round_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

inline uint32_t pack_bf16(float low, float high) {
  return round_bf16(low) | round_bf16(high) << 16;
}

inline float low_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }
inline float high_bf16(uint32_t bits) { return __uint_as_float(bits & 0xffff0000u); }
inline uint32_t to_tf32(float x) { return __float_as_uint(x) + 0x1000u; }

inline float exp2_short(float x) {
  const float result = exp2f(x);
  return result < 1.17549435e-38f ? 0.0f : result;
}

struct MatrixLoad {
  uint32_t address;
  uint32_t* words;
  bool transposed;
};

inline void load(uint32_t (&r)[4], uint32_t address, bool transposed) {
  MatrixLoad own{address, r, transposed};
  warps::meet_warp(&own, [](void** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[8][8];
      for (int row = 0; row < 8; ++row) {
        memcpy(x[row], at(static_cast<MatrixLoad*>(lanes[matrix * 8 + row])->address, 16), 16);
      }
      for (int i = 0; i < 32; ++i) {
        const auto* lane = static_cast<MatrixLoad*>(lanes[i]);
        const int g = i / 4;
        const int t = i % 4 * 2;
        const uint32_t low = lane->transposed ? x[t][g] : x[g][t];
        const uint32_t high = lane->transposed ? x[t + 1][g] : x[g][t + 1];
        lane->words[matrix] = low | high << 16;
      }
    }
  });
}

inline void load_matrices(uint32_t (&r)[4], uint32_t address) { load(r, address, false); }
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) { load(r, address, true); }

struct Product {
  float* c;
  uint32_t a[4];
  uint32_t b[2];
};

/// c += a b for 16 x kDepth and kDepth x 8 matrices that `spread` takes out of the lanes.
template <int kDepth>
void multiply(void** lanes, void (*spread)(const Product&, int g, int t, float (*a)[kDepth],
                                           float (*b)[8])) {
  float a[16][kDepth];
  float b[kDepth][8];
  for (int i = 0; i < 32; ++i) spread(*static_cast<Product*>(lanes[i]), i / 4, i % 4, a, b);
  for (int i = 0; i < 32; ++i) {
    float* c = static_cast<Product*>(lanes[i])->c;
    for (int j = 0; j < 4; ++j) {
      float sum = 0.0f;
      for (int k = 0; k < kDepth; ++k) sum += a[i / 4 + j / 2 * 8][k] * b[k][i % 4 * 2 + j % 2];
      c[j] += sum;
    }
  }
}

inline void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                     uint32_t b0, uint32_t b1) {
  Product own{c, {a0, a1, a2, a3}, {b0, b1}};
  warps::meet_warp(&own, [](void** lanes) {
    multiply<16>(lanes, [](const Product& x, int g, int t, float (*a)[16], float (*b)[8]) {
      for (int i = 0; i < 4; ++i) {
        float* pair = a[g + i % 2 * 8] + 2 * t + i / 2 * 8;
        pair[0] = low_bf16(x.a[i]);
        pair[1] = high_bf16(x.a[i]);
      }
      for (int i = 0; i < 2; ++i) {
        b[2 * t + 8 * i][g] = low_bf16(x.b[i]);
        b[2 * t + 8 * i + 1][g] = high_bf16(x.b[i]);
      }
    });
  });
}

inline float truncated(uint32_t bits) { return __uint_as_float(bits & ~0x1fffu); }

inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Product own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  warps::meet_warp(&own, [](void** lanes) {
    multiply<8>(lanes, [](const Product& x, int g, int t, float (*a)[8], float (*b)[8]) {
      for (int i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = truncated(x.a[i]);
      for (int i = 0; i < 2; ++i) b[t + 4 * i][g] = truncated(x.b[i]);
    });
  });
}

/// Global memory that may be read.
inline std::vector<std::pair<const char*, size_t>> readable;

inline void check_readable(const void* source, size_t bytes) {
  const char* first = static_cast<const char*>(source);
  for (const auto& [data, size] : readable) {
    if (first >= data && first + bytes <= data + size) return;
  }
  fail("read outside of every tensor");
}

/// Copies that a thread has started: done when it waits for them or has them arrive.
struct Copy {
  char* target;
  const void* source;
  bool valid;
};
inline std::map<unsigned, std::vector<Copy>> copies;

inline void copy_async(uint32_t target, const void* source, bool valid) {
  if (valid && reinterpret_cast<uintptr_t>(source) % 16 != 0) fail("misaligned global copy");
  if (valid) check_readable(source, 16);
  copies[warps::thread()].push_back({at(target, 16), source, valid});
}

inline void copy_async_wait_all() {
  for (const Copy& copy : copies[warps::thread()]) {
    if (copy.valid) {
      memcpy(copy.target, copy.source, 16);
    } else {
      memset(copy.target, 0, 16);
    }
  }
  copies[warps::thread()].clear();
}

struct Barrier {
  uint32_t count;
  uint32_t missing;
  uint32_t phase;
  int bytes;  // of copies to come
};
inline std::map<uint32_t, Barrier> barriers;

inline Barrier& barrier_at(uint32_t address) {
  const auto found = barriers.find(address);
  if (found == barriers.end()) fail("no barrier there");
  return found->second;
}

inline void barrier_init(uint32_t barrier, uint32_t count) {
  barriers[barrier] = {count, count, 0, 0};
}

inline void barrier_settle(Barrier& x) {
  if (x.missing == 0 && x.bytes == 0) {
    x.missing = x.count;
    x.phase ^= 1;
  }
}

inline void barrier_arrive(uint32_t barrier) {
  Barrier& x = barrier_at(barrier);
  --x.missing;
  barrier_settle(x);
}

inline void barrier_arrive_after_copies(uint32_t barrier) {
  warps::give_way();  // others run before the copies are there
  copy_async_wait_all();
  barrier_arrive(barrier);
}

inline bool barrier_test(uint32_t barrier, uint32_t parity) {
  return barrier_at(barrier).phase != (parity & 1);
}

inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (!barrier_test(barrier, parity)) warps::give_way();
}

inline void warps_meet(int index, int threads) {
  struct Meeting {
    int here = 0;
    unsigned number = 0;
  };
  static Meeting meetings[16];
  Meeting& x = meetings[index];
  const unsigned own = x.number;
  if (++x.here == threads) {
    x.here = 0;
    ++x.number;
  }
  while (x.number == own) warps::give_way();
}

inline void prefetch(const void* source, uint32_t bytes) { check_readable(source, bytes); }
inline void release_next_kernel() {}
inline void wait_for_previous_kernel() {}

inline uint4 load_shared(uint32_t address) {
  uint4 x;
  memcpy(&x, at(address, 16), 16);
  return x;
}

inline float2 load_shared_pair(uint32_t address) {
  float2 x;
  memcpy(&x, at(address, 8), 8);
  return x;
}

inline float load_shared_float(uint32_t address) {
  float x;
  memcpy(&x, at(address, 4), 4);
  return x;
}

inline void store_shared(uint32_t address, uint4 x) { memcpy(at(address, 16), &x, 16); }
inline void store_shared_word(uint32_t address, uint32_t x) { memcpy(at(address, 4), &x, 4); }

}  // namespace gdn
