// Products of warpgroups, which only Hopper has.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Set where the compiler knows them; elsewhere each warp multiplies for itself.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TOPK_WARPGROUPS 1
#else
#define TOPK_WARPGROUPS 0
#endif

#if TOPK_WARPGROUPS
namespace topk {

/// Queries of 16 product indices as a second factor.
__device__ __forceinline__ uint64_t factor_at(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}

#define TOPK_EIGHT(c, i)                                                                  \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])

/// c (64 x 64) = a b, plus itself if `add`.
__device__ __forceinline__ void multiply(float (&c)[32], const uint32_t (&a)[4], uint64_t b,
                                         int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}\n"
      : TOPK_EIGHT(c, 0), TOPK_EIGHT(c, 8), TOPK_EIGHT(c, 16), TOPK_EIGHT(c, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)
      : "memory");
}

#undef TOPK_EIGHT

/// Before the first product, and after registers of one were written otherwise.
__device__ __forceinline__ void groups_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void groups_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits for all products, and keeps the compiler from reading results before.
__device__ __forceinline__ void groups_wait(float (&c)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

}  // namespace topk
#endif
