// Stands in for the solution's ptx.cuh: the same functions for fibers on a CPU.
#pragma once

#include <map>

#include "cuda_bf16.h"
#include "cuda_runtime.h"

namespace moe {

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

inline float value_fp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const float mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return NAN;
  const float x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
  return bits & 0x80 ? -x : x;
}

inline uint32_t round_fp8(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint32_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fmin(std::fabs(x), 448.0f);
  const int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return sign | (steps < 8 ? steps : steps + (static_cast<uint32_t>(exponent + 6) << 3));
}

inline uint32_t pack_fp8(float low, float high) { return round_fp8(low) | round_fp8(high) << 8; }

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
  const uint32_t* a;
  const uint32_t* b;
};

inline void mma_fp8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Product own{c, a, b};
  fibers::meet_warp(&own, [](void** lanes) {
    float a[16][32];
    float b[32][8];
    for (int i = 0; i < 32; ++i) {
      const auto& x = *static_cast<Product*>(lanes[i]);
      for (int j = 0; j < 4; ++j) {
        for (int k = 0; k < 4; ++k) {
          a[i / 4 + j % 2 * 8][i % 4 * 4 + j / 2 * 16 + k] =
              value_fp8(static_cast<uint8_t>(x.a[j] >> 8 * k));
          if (j < 2) b[i % 4 * 4 + j * 16 + k][i / 4] = value_fp8(static_cast<uint8_t>(x.b[j] >> 8 * k));
        }
      }
    }
    for (int i = 0; i < 32; ++i) {
      float* c = static_cast<Product*>(lanes[i])->c;
      for (int j = 0; j < 4; ++j) {
        float sum = 0.0f;
        for (int k = 0; k < 32; ++k) sum += a[i / 4 + j / 2 * 8][k] * b[k][i % 4 * 2 + j % 2];
        c[j] += sum;
      }
    }
  });
}

inline void copy_async(uint32_t target, const void* source) {
  fibers::check_read(source, 16);
  fibers::start_copy(at(target, 16), source, true, 16);
}
inline void copy_async_word(uint32_t target, const void* source) {
  fibers::check_read(source, 4);
  fibers::start_copy(at(target, 4), source, true, 4);
}

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
inline void barriers_visible() {}

inline void barrier_arrive(uint32_t address) {
  Barrier& barrier = barrier_at(address);
  if (--barrier.missing == 0) {
    barrier.missing = barrier.expected;
    barrier.phase ^= 1;
    fibers::progress();
  }
}

inline void barrier_arrive_after_copies(uint32_t barrier) {
  for (unsigned turns = fibers::random_bits() % 8; turns > 0; --turns) fibers::give_way();
  fibers::finish_copies();
  barrier_arrive(barrier);
}

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

inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (barrier_at(barrier).phase == (parity & 1)) fibers::give_way();
}

inline void order_before_async() {}
inline void warps_meet(int index, int threads) { fibers::meet_some(index, threads); }

// Blocks run one after the other here, so there are no clusters.
inline unsigned rank_in_cluster() { fibers::fail("a cluster"); }
inline void store_in_cluster(unsigned, uint32_t, uint32_t) { fibers::fail("a cluster"); }
inline void cluster_meet() { fibers::fail("a cluster"); }

inline int load_acquire(const int* source) {
  fibers::give_way();
  return *const_cast<const volatile int*>(source);
}
inline void add_release(int* target, int x) { atomicAdd(target, x); }
inline int add_acquire_release(int* target, int x) { return atomicAdd(target, x); }
inline void release_next_kernel() {}
inline void wait_for_previous_kernel() {}

inline float2 load_shared_pair(uint32_t address) { return loaded<float2>(address); }
inline float load_shared_float(uint32_t address) { return loaded<float>(address); }

}  // namespace moe
