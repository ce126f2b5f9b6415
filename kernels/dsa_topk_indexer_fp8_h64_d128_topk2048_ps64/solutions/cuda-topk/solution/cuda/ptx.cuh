// The instructions that have no C++ name. All of them exist from sm_90 on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tunables.h"

namespace topk {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// What the second-level cache should do with pages: 0 where nothing is asked.
__device__ __forceinline__ uint64_t page_policy() {
  uint64_t policy = 0;
#if KOPT_LOAD_HINT == 2
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}

/// 16 bytes of a page.
__device__ __forceinline__ uint4 load_page_bytes(const uint8_t* source, uint64_t policy) {
  uint4 x;
#if KOPT_LOAD_HINT == 0  // plain
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 1  // not kept in the first-level cache
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(source));
#elif KOPT_LOAD_HINT == 2  // and the first to leave the second
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(source), "l"(policy));
#else
#error "LOAD_HINT must be 0, 1 or 2"
#endif
  return x;
}

__device__ __forceinline__ void prefetch_line(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
}

/// Copies 4 bytes to shared memory; `copies_wait` waits for the thread's copies.
__device__ __forceinline__ void copy_word(uint32_t target, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(source) : "memory");
}

__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Four e4m3 numbers as halves, exactly: the first two in `low`, the first in its lower half.
__device__ __forceinline__ void to_halves(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, second;\n}\n"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

__device__ __forceinline__ void store_shared_word(uint32_t address, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

/// Orders the thread's accesses to shared memory before those of warpgroup products.
__device__ __forceinline__ void order_before_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// c (16 x 8) += a (16 x 16) b (16 x 8), operands in half precision.
__device__ __forceinline__ void multiply_warp(float* c, const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ int cluster_index() {
  int x;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  return x;
}

__device__ __forceinline__ int cluster_count() {
  int x;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(x));
  return x;
}

__device__ __forceinline__ int cluster_rank() {
  int x;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
  return x;
}

__device__ __forceinline__ int cluster_size() {
  int x;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(x));
  return x;
}

/// Orders nothing but barriers, by the fence of their initialisation.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The address in shared memory of another block of the cluster.
__device__ __forceinline__ uint32_t address_in(int rank, uint32_t address) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// Makes the barrier one that waits for one arrival and for bytes.
__device__ __forceinline__ void barrier_init(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and `bytes` are to come.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Waits for the first completion of the barrier.
__device__ __forceinline__ void barrier_wait(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra retry;\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

/// Stores into another block and reports the bytes to a barrier there.
__device__ __forceinline__ void send_float(uint32_t address, float x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(__float_as_uint(x)), "r"(barrier)
      : "memory");
}

}  // namespace topk
