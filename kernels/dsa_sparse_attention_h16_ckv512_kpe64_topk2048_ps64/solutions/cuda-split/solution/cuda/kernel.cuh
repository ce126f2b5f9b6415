// The kernel: one cluster of blocks for a query token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "attend.cuh"
#include "memory.cuh"
#include "merge.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Problem problem) {
  extern __shared__ __align__(128) char storage[];
  const uint32_t memory = shared_address(storage);
  const int rank = static_cast<int>(blockIdx.x % kBlocks);
  const int64_t token = blockIdx.x / kBlocks;

  Share share(problem, memory, token, rank);
  cluster_arrive();  // others may write to this block's inboxes: it runs
  share.load_queries();
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) share.load_rows(stage);
  copy_async_wait<kStages>();
  __syncthreads();
  share.hold_queries();

  static_assert(kStages == 2);
  copy_async_wait<1>();
  __syncwarp();
  share.add_stage(0);
  copy_async_wait<0>();
  __syncwarp();
  share.add_stage(1);

  share.publish_sums();
  cluster_wait();
  share.send_parts(rank);
  __syncthreads();
  send_sums(memory, rank);
  cluster_arrive();
  cluster_wait();  // all has been sent, and nobody sends to a block that has ended
  find_shares(problem, memory, token, rank);
  __syncthreads();
  write_output(problem, memory, token, rank);
}

}  // namespace dsa
