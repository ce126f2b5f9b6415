// Kernels that each do one thing that hardware forbids or leaves open, and some that are right.
#pragma once

#include <cuda_runtime.h>

#include "ptx.cuh"

namespace wrong {

constexpr int kBytes = 1024;

struct Call {
  const float* data;  // 32 of them
  int* flag;
};

__device__ __forceinline__ uint32_t memory() {
  extern __shared__ __align__(128) char bytes[];
  return shared_address(bytes);
}

/// A barrier at the start of shared memory, for so many arrivals.
__device__ __forceinline__ uint32_t barrier_for(uint32_t count) {
  if (threadIdx.x == 0) barrier_init(memory(), count);
  __syncthreads();
  return memory();
}

__global__ void misaligned(Call) { store_shared_word(memory() + 2, 0); }

__global__ void beyond(Call) { store_shared_word(memory() + kBytes, 0); }

__global__ void no_address(Call call) { load_shared_word(shared_address(call.data)); }

__global__ void outside(Call call) { __ldg(call.data + 32); }

__global__ void misaligned_copy(Call call) {
  copy_async(memory(), call.data + 1);
  copy_async_wait_all();
}

__global__ void unawaited_copy(Call call) { copy_async(memory() + 16 * threadIdx.x, call.data); }

__global__ void unawaited_bulk_copy(Call call) {
  const uint32_t barrier = barrier_for(1);
  if (threadIdx.x > 0) return;
  barrier_expect(barrier, 64);
  copy_bulk(memory() + 128, call.data, 64, barrier);
}

__global__ void unexpected_bytes(Call call) {
  const uint32_t barrier = barrier_for(1);
  if (threadIdx.x == 0) {
    barrier_expect(barrier, 32);
    copy_bulk(memory() + 128, call.data, 64, barrier);
  }
  barrier_wait(barrier, 0);
}

__global__ void unawaited_product(Call) {
  float c[32] = {};
  multiply_group<Bf16>(c, {0, 0, 0, 0}, rows_at(memory()), 0);
  products_commit();
}

__global__ void no_barrier(Call) { barrier_wait(memory(), 0); }

__global__ void missing_arrival(Call) { barrier_wait(barrier_for(1), 0); }

__global__ void many_arrivals(Call) {
  const uint32_t barrier = barrier_for(2);
  if (threadIdx.x > 0) return;
  barrier_expect(barrier, 16);
  barrier_arrive(barrier);
  barrier_arrive(barrier);
}

__global__ void other_counts(Call) { warps_meet(1, threadIdx.x < 32 ? 96 : 64); }

__global__ void parted_lanes(Call) {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __ballot_sync(kAllLanes, true);
  }
}

__global__ void left_out_lanes(Call) { __shfl_sync(1u, 0, 0); }

__global__ void endless(Call) {
  while (true) __syncthreads();
}

/// Needs its neighbour while that runs.
__global__ void ended_neighbour(Call) {
  cluster_meet();
  if (blockIdx.x == 1) return;
  for (int i = 0; i < 1000; ++i) fibers::give_way();
  store_in_cluster(1, memory(), 0);
}

__global__ void large_variable(Call) {
  __shared__ float all[49 * 256];
  all[threadIdx.x] = 0.0f;
}

__global__ void waits_for_the_next_block(Call call) {
  if (blockIdx.x == 1) *call.flag = 1;
  fibers::wait_until([=] { return *call.flag == 1; });
}

/// Ends with 1 where what was never written, a sum over a cluster or a bulk copy is not as it should.
__global__ void right(Call call) {
  __shared__ unsigned sums[2];
  const bool unwritten = load_shared_float(memory() + 512) == load_shared_float(memory() + 512);
  const unsigned own = __reduce_add_sync(kAllLanes, threadIdx.x % 32 + blockIdx.x);
  const uint32_t barrier = barrier_for(1);
  cluster_meet();
  if (threadIdx.x < 2) store_in_cluster(threadIdx.x, shared_address(sums + blockIdx.x), own);
  if (threadIdx.x == 0) {
    barrier_expect(barrier, 128);
    copy_bulk(memory() + 128, call.data, 128, barrier);
  }
  barrier_wait(barrier, 0);
  cluster_meet();
  const float copied = load_shared_float(memory() + 128 + threadIdx.x % 32 * 4);
  const float before = __shfl_up_sync(kAllLanes, copied, 1);
  const bool in_order = threadIdx.x % 32 == 0 || before + 1.0f == copied;
  if (unwritten || sums[0] != 496 || sums[1] != 528 || !in_order) *call.flag = 1;
}

}  // namespace wrong
