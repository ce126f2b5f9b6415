// Hopper only: products of a warpgroup, and copies by tensor map. Four warps, the first of them a
// multiple of four, multiply 64 x 16 by 16 x n; what a warp has of the first factor and of the
// result is what it would have for mma.sync, so registers go from one product into the next.
#pragma once

#include "maps.cuh"
#include "ptx.cuh"

// Set where the compiler knows these instructions; the bodies of kernels that use them are left out
// elsewhere, and the host does not launch them there.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define GDN_WARPGROUPS 1
#else
#define GDN_WARPGROUPS 0
#endif

namespace gdn {

constexpr int kAtomBytes = 8 * 128;  // eight rows of 128 bytes, swizzled: 16-byte piece p at p ^ row

/// A second factor (16 x n) that lies in shared memory as n rows of 16 consecutive elements, rows
/// being 128 bytes.
__device__ __forceinline__ uint64_t rows_at(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(kAtomBytes >> 4) << 32 | uint64_t{1} << 62;
}

/// One that lies as 16 rows of n consecutive elements, the second 64 `stride` bytes on.
__device__ __forceinline__ uint64_t columns_at(uint32_t address, uint32_t stride) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(stride >> 4) << 16 |
         static_cast<uint64_t>(kAtomBytes >> 4) << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ uint64_t moved(uint64_t factor, int bytes) {
  return factor + static_cast<uint64_t>(bytes >> 4);
}

/// The same in all lanes, and known to the compiler to be: products under way do not bear branches
/// that might split a warp.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

/// Changes how many registers each thread of the warpgroup may have.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void drop_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Before the first product, and after registers of one were written otherwise.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Closes a group of products.
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kLeft groups are under way.
template <int kLeft>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

/// Keeps the compiler from reading results before the wait above this.
template <int kAll>
__device__ __forceinline__ void results_ready(float (&c)[kAll]) {
#pragma unroll
  for (int i = 0; i < kAll; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

#define KOPT_EIGHT(c, i)                                                                  \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])

// c[kFirst ..] (64 x n) = a b, plus itself if `add`; of 128, `b` is columns_at, otherwise rows_at.

__device__ __forceinline__ void multiply_64(float (&c)[32], const uint32_t (&a)[4], uint64_t b,
                                            int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}\n"
      : KOPT_EIGHT(c, 0),
        KOPT_EIGHT(c, 8),
        KOPT_EIGHT(c, 16),
        KOPT_EIGHT(c, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)
      : "memory");
}

__device__ __forceinline__ void multiply_128(float (&c)[64], const uint32_t (&a)[4], uint64_t b,
                                            int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}\n"
      : KOPT_EIGHT(c, 0),
        KOPT_EIGHT(c, 8),
        KOPT_EIGHT(c, 16),
        KOPT_EIGHT(c, 24),
        KOPT_EIGHT(c, 32),
        KOPT_EIGHT(c, 40),
        KOPT_EIGHT(c, 48),
        KOPT_EIGHT(c, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)
      : "memory");
}


/// c (64 x 64) = a b, plus itself if `add`; both factors are rows_at.
__device__ __forceinline__ void multiply_shared_64(float (&c)[32], uint64_t a, uint64_t b,
                                                   int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0;\n}\n"
      : KOPT_EIGHT(c, 0),
        KOPT_EIGHT(c, 8),
        KOPT_EIGHT(c, 16),
        KOPT_EIGHT(c, 24)
      : "l"(a), "l"(b), "r"(add)
      : "memory");
}

/// c (64 x 128) = a b, plus itself if `add`; both factors are rows_at.
__device__ __forceinline__ void multiply_shared_128(float (&c)[64], uint64_t a, uint64_t b,
                                                    int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}\n"
      : KOPT_EIGHT(c, 0),
        KOPT_EIGHT(c, 8),
        KOPT_EIGHT(c, 16),
        KOPT_EIGHT(c, 24),
        KOPT_EIGHT(c, 32),
        KOPT_EIGHT(c, 40),
        KOPT_EIGHT(c, 48),
        KOPT_EIGHT(c, 56)
      : "l"(a), "l"(b), "r"(add)
      : "memory");
}

#undef KOPT_EIGHT

/// Four 8 x 8 matrices in the order of accumulators; lane i gives the address of row i % 8 of
/// matrix i / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void store_matrices_transposed(uint32_t address,
                                                          const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

/// Orders the thread's accesses to shared memory before those of products and bulk copies.
__device__ __forceinline__ void order_before_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Makes barriers that the thread has initialised known to copies.
__device__ __forceinline__ void barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and `bytes` of copies are to come.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Copies `bytes`, a multiple of 16, to shared memory and reports them to the barrier.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          target),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Copies 64 rows, 128 bytes each, swizzled; zeros beyond the last row.
__device__ __forceinline__ void copy_box(uint32_t target, const TensorMap& map, int column, int row,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(target),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// Copies `bytes` from shared memory; `stores_wait` waits for the thread's stores.
__device__ __forceinline__ void store_bulk(void* target, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
               "r"(source), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// The same for 64 rows of 128 bytes, swizzled.
__device__ __forceinline__ void store_box(const TensorMap& map, int column, int row,
                                          uint32_t source) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(column), "r"(row), "r"(source)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Waits until the stores have read shared memory.
__device__ __forceinline__ void stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void store_shared_pair(uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

/// Tells `readers` threads of other blocks that what the thread knows to be written is there.
__device__ __forceinline__ void flag_raise(unsigned* flag, unsigned readers) {
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(readers) : "memory");
}

/// Waits for such a flag, and lowers it where the thread is the last to see it.
__device__ __forceinline__ void flag_take(unsigned* flag) {
  unsigned readers;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(readers) : "l"(flag) : "memory");
  } while (readers == 0);
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(~0u) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

}  // namespace gdn
