// Stands in for the solution's ptx.cuh: the same functions on a CPU.
#pragma once

#include "emulated.h"
#include "tunables.h"

namespace topk {

using namespace emulated;

inline int cluster_index() { return static_cast<int>(fibers::block() / fibers::cluster_size()); }
inline int cluster_count() { return static_cast<int>(fibers::blocks() / fibers::cluster_size()); }
inline int cluster_rank() { return static_cast<int>(fibers::cluster_rank()); }
inline int cluster_size() { return static_cast<int>(fibers::cluster_size()); }

inline uint64_t page_policy() { return 0; }

inline uint4 load_page_bytes(const uint8_t* source, uint64_t) {
  require_aligned(source, 16);
  return __ldg(reinterpret_cast<const uint4*>(source));
}

inline void prefetch_line(const void* source) { prefetch(source, 128); }
inline void copy_word(uint32_t target, const void* source) { copy_async_word(target, source); }
inline void copies_wait() { copy_async_wait_all(); }

inline uint32_t two_halves(uint32_t pair) {
  return round_half(of_e4m3(pair & 255)) | round_half(of_e4m3(pair >> 8 & 255)) << 16;
}
inline void to_halves(uint32_t four, uint32_t& low, uint32_t& high) {
  low = two_halves(four);
  high = two_halves(four >> 16);
}

inline void multiply_warp(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::multiply_warp<Half>(c, a, b0, b1);
}

inline void barrier_init(uint32_t barrier) { emulated::barrier_init(barrier, 1); }
inline void barrier_wait(uint32_t barrier) { emulated::barrier_wait(barrier, 0); }

}  // namespace topk
