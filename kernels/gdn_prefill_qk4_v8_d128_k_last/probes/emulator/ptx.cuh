// Stands in for the solution's ptx.cuh: the same functions for fibers on a CPU.
#pragma once

#include "cuda_bf16.h"
#include "cuda_runtime.h"

namespace gdn {

constexpr unsigned kAllLanes = 0xffffffffu;
alignas(1024) inline char origin[16];  // shared addresses are distances from here

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - origin);
}

inline char* at(uint32_t address, int alignment) {
  char* pointer = origin + static_cast<int32_t>(address);
  asm("" : "+r"(pointer));  // or the compiler warns that `origin` ends soon
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    fibers::fail("misaligned access to shared memory");
  }
  return pointer;
}

template <typename T>
T loaded(uint32_t address) {
  T x;
  memcpy(&x, at(address, sizeof(T)), sizeof(T));
  return x;
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
inline float reciprocal(float x) { return 1.0f / x; }

inline float exp2_short(float x) {
  const float result = exp2f(x);
  return result < 0x1p-126f ? 0.0f : result;
}

struct MatrixLoad {
  uint32_t address;
  uint32_t* words;
  bool transposed;
};

inline void load(uint32_t (&r)[4], uint32_t address, bool transposed) {
  MatrixLoad own{address, r, transposed};
  fibers::meet_warp(&own, [](void** lanes) {
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
  fibers::meet_warp(&own, [](void** lanes) {
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

inline void mma_in_order(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma_bf16(c, a[0], a[1], a[2], a[3], b0, b1);
}

inline float truncated(uint32_t bits) { return __uint_as_float(bits & ~0x1fffu); }

inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Product own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  fibers::meet_warp(&own, [](void** lanes) {
    multiply<8>(lanes, [](const Product& x, int g, int t, float (*a)[8], float (*b)[8]) {
      for (int i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = truncated(x.a[i]);
      for (int i = 0; i < 2; ++i) b[t + 4 * i][g] = truncated(x.b[i]);
    });
  });
}

inline void copy_async(uint32_t target, const void* source, bool valid) {
  if (valid && reinterpret_cast<uintptr_t>(source) % 16 != 0) fibers::fail("misaligned copy");
  if (valid) fibers::check_read(source, 16);
  fibers::start_copy(at(target, 16), source, valid);
}

inline void copy_async_wait_all() { fibers::finish_copies(); }

/// What the kernels see as 8 bytes of an mbarrier; shared memory starts as no barrier at all.
struct Barrier {
  uint16_t expected;
  uint16_t missing;
  uint32_t phase;
};

inline Barrier& barrier_at(uint32_t address) {
  Barrier& barrier = *reinterpret_cast<Barrier*>(at(address, 8));
  if (barrier.expected == 0 || barrier.expected > 1024) fibers::fail("no barrier there");
  return barrier;
}

inline void barrier_init(uint32_t address, uint32_t count) {
  const auto arrivals = static_cast<uint16_t>(count);
  *reinterpret_cast<Barrier*>(at(address, 8)) = {arrivals, arrivals, 0};
}

inline void barrier_arrive(uint32_t address) {
  Barrier& barrier = barrier_at(address);
  if (--barrier.missing == 0) {
    barrier.missing = barrier.expected;
    barrier.phase ^= 1;
    fibers::progress();
  }
}

inline void barrier_arrive_after_copies(uint32_t barrier) {
  for (unsigned turns = fibers::random_bits() % 40; turns > 0; --turns) fibers::give_way();
  fibers::finish_copies();
  barrier_arrive(barrier);
}

inline bool barrier_test(uint32_t barrier, uint32_t parity) {
  return barrier_at(barrier).phase != (parity & 1);
}

inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (!barrier_test(barrier, parity)) fibers::give_way();
}

inline void warps_meet(int index, int threads) { fibers::meet_some(index, threads); }
inline void warps_arrive(int index, int threads) { fibers::count_some(index, threads); }
inline void prefetch(const void* source, uint32_t bytes) { fibers::check_read(source, bytes); }
inline void release_next_kernel() {}
inline void wait_for_previous_kernel() {}

inline uint4 load_shared(uint32_t address) { return loaded<uint4>(address); }
inline float2 load_shared_pair(uint32_t address) { return loaded<float2>(address); }
inline uint32_t load_shared_word(uint32_t address) { return loaded<uint32_t>(address); }
inline float load_shared_float(uint32_t address) { return loaded<float>(address); }
inline void store_shared(uint32_t address, uint4 x) { memcpy(at(address, 16), &x, 16); }
inline void store_shared_word(uint32_t address, uint32_t x) { memcpy(at(address, 4), &x, 4); }

}  // namespace gdn
