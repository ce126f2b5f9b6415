// Stands in for the solution's file of the same name. An address in shared memory is a block's rank
// in its cluster, and how far into the block's memory.
#pragma once

#include <cuda_runtime.h>

#include "tunables.h"

namespace topk {

constexpr unsigned kAllLanes = 0xffffffffu;

inline int cluster_index() { return static_cast<int>(fibers::block() / fibers::cluster_size()); }
inline int cluster_count() { return static_cast<int>(fibers::blocks() / fibers::cluster_size()); }
inline int cluster_rank() { return static_cast<int>(fibers::block() % fibers::cluster_size()); }
inline int cluster_size() { return static_cast<int>(fibers::cluster_size()); }
inline void cluster_arrive() { fibers::arrive_cluster(); }
inline void cluster_wait() { fibers::wait_cluster(); }

inline uint32_t address_in(int rank, uint32_t address) {
  return (address & 0xffffff) | static_cast<uint32_t>(rank) << 24;
}

inline uint32_t shared_address(const void* pointer) {
  const auto offset = static_cast<const char*>(pointer) - fibers::shared_memory(cluster_rank());
  if (offset < 0 || offset >= static_cast<ptrdiff_t>(fibers::kSharedBytes)) fibers::fail("address");
  return address_in(cluster_rank(), static_cast<uint32_t>(offset));
}

template <typename T>
T* at(uint32_t address) {
  if (address % sizeof(T) != 0) fibers::fail("misaligned");
  return reinterpret_cast<T*>(fibers::shared_memory(address >> 24) + (address & 0xffffff));
}

inline uint64_t page_policy() { return 0; }

inline uint4 load_page_bytes(const uint8_t* source, uint64_t) {
  if (reinterpret_cast<uintptr_t>(source) % 16 != 0) fibers::fail("misaligned");
  return __ldg(reinterpret_cast<const uint4*>(source));
}

inline void prefetch_line(const void* source) { fibers::check_read(source, 128); }

inline void copy_word(uint32_t target, const void* source) {
  fibers::copy_later(at<uint32_t>(target), static_cast<const uint32_t*>(source));
}

inline void copies_wait() { fibers::finish_copies(); }

inline float of_e4m3(unsigned bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 128 ? -size : size;
}

inline uint32_t two_halves(unsigned pair) {
  const _Float16 low = static_cast<_Float16>(of_e4m3(pair & 255));
  const _Float16 high = static_cast<_Float16>(of_e4m3(pair >> 8 & 255));
  return same_bits<uint16_t>(low) | static_cast<uint32_t>(same_bits<uint16_t>(high)) << 16;
}

inline void to_halves(uint32_t four, uint32_t& low, uint32_t& high) {
  low = two_halves(four);
  high = two_halves(four >> 16);
}

inline void store_shared_word(uint32_t address, uint32_t x) { *at<uint32_t>(address) = x; }
inline uint32_t load_shared_word(uint32_t address) { return *at<uint32_t>(address); }
inline void order_before_async() {}

struct Operands {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};

inline float half_of(uint32_t pair, int index) {
  return same_bits<_Float16>(static_cast<uint16_t>(pair >> 16 * index));
}

/// Lanes hold what the instruction has them hold.
inline void multiply_warp(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Operands own{c, a, {b0, b1}};
  fibers::meet_warp(&own, [](void** lanes) {
    const auto lane = [&](int i) { return static_cast<const Operands*>(lanes[i]); };
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float sum = 0.0f;
        for (int k = 0; k < 16; ++k) {
          const Operands* x = lane(row % 8 * 4 + k % 8 / 2);
          const Operands* y = lane(column * 4 + k % 8 / 2);
          sum += half_of(x->a[row / 8 + k / 8 * 2], k % 2) * half_of(y->b[k / 8], k % 2);
        }
        lane(row % 8 * 4 + column / 2)->c[row / 8 * 2 + column % 2] += sum;
      }
    }
  });
}

struct Barrier {
  int32_t arrivals, bytes;
};

inline void barrier_init(uint32_t barrier) { *at<Barrier>(barrier & ~7u) = {1, 0}; }

inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  --at<Barrier>(barrier)->arrivals;
  at<Barrier>(barrier)->bytes += static_cast<int32_t>(bytes);
  fibers::progress();
}

inline void barrier_wait(uint32_t barrier) {
  const Barrier* state = at<Barrier>(barrier);
  while (state->arrivals != 0 || state->bytes != 0) fibers::give_way();
}

inline void send_float(uint32_t address, float x, uint32_t barrier) {
  fibers::put_off([=] {
    *at<float>(address) = x;
    at<Barrier>(barrier)->bytes -= 4;
  });
}

}  // namespace topk
