// Stands in for the solution's ptx.cuh: the same functions for fibers on a CPU.
#pragma once

#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "tunables.h"

namespace dsa {

constexpr unsigned kAllLanes = 0xffffffffu;

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - fibers::shared_memory());
}

inline char* at(uint32_t address, int bytes) {
  if (address % bytes != 0) fibers::fail("misaligned access to shared memory");
  if (address + bytes > fibers::kSharedBytes) fibers::fail("access beyond shared memory");
  return fibers::shared_memory() + address;
}

template <typename T>
T loaded(uint32_t address) {
  T x;
  memcpy(&x, at(address, sizeof(T)), sizeof(T));
  return x;
}

template <typename T>
void stored(char* target, T x) {
  memcpy(target, &x, sizeof(T));
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

inline float exp2_short(float x) {
  const float result = exp2f(x);
  return result < 0x1p-126f ? 0.0f : result;
}

inline float log2_short(float x) { return log2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }

inline float4 load_shared(uint32_t address) { return loaded<float4>(address); }
inline float2 load_shared_pair(uint32_t address) { return loaded<float2>(address); }
inline float load_shared_float(uint32_t address) { return loaded<float>(address); }
inline void store_shared(uint32_t address, float4 x) { stored(at(address, 16), x); }
inline void store_shared_float(uint32_t address, float x) { stored(at(address, 4), x); }
inline void store_shared_word(uint32_t address, uint32_t x) { stored(at(address, 4), x); }
inline uint32_t load_shared_word(uint32_t address) { return loaded<uint32_t>(address); }

inline void store_shared_byte(uint32_t address, uint32_t x) {
  stored(at(address, 1), static_cast<uint8_t>(x));
}


struct MatrixLoad {
  uint32_t address;
  uint32_t* words;
  bool transposed;
};

inline void load(uint32_t (&r)[4], uint32_t address, bool transposed) {
  at(address, 16);
  MatrixLoad own{address, r, transposed};
  fibers::meet_warp(&own, [](void** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[8][8];
      for (int row = 0; row < 8; ++row) {
        memcpy(x[row], at(static_cast<MatrixLoad*>(lanes[matrix * 8 + row])->address, 16),
               16);
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

inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Product {
    float* c;
    uint32_t a[4];
    uint32_t b[2];
  } own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  fibers::meet_warp(&own, [](void** lanes) {
    float a[16][16];
    float b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& x = *static_cast<Product*>(lanes[lane]);
      const int g = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        float* pair = a[g + i % 2 * 8] + 2 * t + i / 2 * 8;
        pair[0] = low_bf16(x.a[i]);
        pair[1] = high_bf16(x.a[i]);
      }
      for (int i = 0; i < 2; ++i) {
        b[2 * t + 8 * i][g] = low_bf16(x.b[i]);
        b[2 * t + 8 * i + 1][g] = high_bf16(x.b[i]);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      float* c = static_cast<Product*>(lanes[lane])->c;
      for (int j = 0; j < 4; ++j) {
        float sum = 0.0f;
        for (int k = 0; k < 16; ++k) sum += a[lane / 4 + j / 2 * 8][k] * b[k][lane % 4 * 2 + j % 2];
        c[j] += sum;
      }
    }
  });
}

inline void copy_async(uint32_t target, const void* source, bool valid) {
  if (reinterpret_cast<uintptr_t>(source) % 16 != 0) fibers::fail("misaligned copy");
  if (valid) fibers::check_read(source, 16);
  fibers::start_copy(at(target, 16), source, valid);
}

/// What the kernel sees as 8 bytes of an mbarrier; shared memory starts as no barrier at all.
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

inline void barrier_arrive_after_copies(uint32_t address) {
  for (unsigned turns = fibers::random_bits() % 40; turns > 0; --turns) fibers::give_way();
  fibers::finish_copies();
  barrier_arrive(address);
}

inline void barrier_wait(uint32_t address, uint32_t parity) {
  while (barrier_at(address).phase == (parity & 1)) fibers::give_way();
}

inline void warps_meet(int index, int threads) { fibers::meet_some(index, threads); }
inline void warps_arrive(int index, int threads) { fibers::count_some(index, threads); }

template <typename T>
void load_global(T& x, const T* source, bool real) {
  fibers::give_way();
  if (real) x = *source;
}

template <typename T>
void store_global(T* target, T x, bool real) {
  if (!real) return;
  stored(reinterpret_cast<char*>(target), x);
  fibers::progress();
}

}  // namespace dsa
