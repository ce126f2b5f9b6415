// Bulk copies between global and shared memory, and the barrier that counts their bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tunables.h"

namespace gdn {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// One arrival, that of `bulk_load`.
__device__ __forceinline__ void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Waits for the first completion of the barrier.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra retry;\n"
      "}\n" ::"r"(shared_address(barrier))
      : "memory");
}

/// Starts a copy of `bytes`, a multiple of 16, that completes the barrier; called by one thread.
__device__ __forceinline__ void bulk_load(void* target, const void* source, uint32_t bytes,
                                          uint64_t* barrier, uint64_t policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
#if KOPT_LOAD_HINT == 4
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(target)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
#else
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address(target)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

/// Before one thread stores what the whole warp has written to shared memory.
__device__ __forceinline__ void publish_to_bulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
}

__device__ __forceinline__ void bulk_store(void* target, const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Until this thread's stores have read shared memory, which must outlive that.
__device__ __forceinline__ void bulk_store_drain() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace gdn
