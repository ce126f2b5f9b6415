// What a block does with what the blocks of its cluster have sent it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "memory.cuh"
#include "problem.cuh"
#include "ptx.cuh"

namespace dsa {

/// Sends all blocks the largest logit and the sum of weights of each head of this one.
__device__ __forceinline__ void send_sums(uint32_t memory, int rank) {
  static_assert(kBlocks * kHeads <= kThreads);
  if (threadIdx.x >= kBlocks * kHeads) return;
  const int head = threadIdx.x % kHeads;
  const uint32_t sums = memory + Memory::kSums + head * kWarps * 4;
  const float4 a = load_shared(sums);
  const float4 b = load_shared(sums + 16);
  const float sum = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
  const float top = load_shared_float(memory + Memory::kOwnTops + head * 4);
  const uint32_t address = memory + Memory::kSumInbox + (rank * kHeads + head) * 8;
  store_remote_pair(in_block(address, threadIdx.x / kHeads), make_float2(top, sum));
}

/// How much each block's sums count, normalised; the block of a head's number writes its lse.
__device__ __forceinline__ void find_shares(const Problem& problem, uint32_t memory, int64_t token,
                                            int rank) {
  static_assert(kBlocks == 16 && kHeads * kBlocks == kThreads);
  const int head = threadIdx.x / kBlocks;
  const int block = threadIdx.x % kBlocks;
  const float2 sent = load_shared_pair(memory + Memory::kSumInbox + (block * kHeads + head) * 8);
  float top = sent.x;
#pragma unroll
  for (int distance = 1; distance < kBlocks; distance *= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, distance));
  }
  const float share = exp2_short(sent.x - (top == -INFINITY ? 0.0f : top));
  float sum = share * sent.y;
#pragma unroll
  for (int distance = 1; distance < kBlocks; distance *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  store_shared_float(memory + Memory::kShares + threadIdx.x * 4, sum > 0.0f ? share / sum : 0.0f);
  if (block == 0 && head == rank) problem.lse[token * kHeads + head] = top + log2f(sum);
}

/// Adds up the columns of this block and writes them.
__device__ __forceinline__ void write_output(const Problem& problem, uint32_t memory, int64_t token,
                                             int rank) {
  static_assert(kTilesPerBlock * 64 == kThreads);  // two elements a thread
  const int tile = threadIdx.x / 64;
  const int lane = threadIdx.x % 64 / 2;
  const int half = threadIdx.x % 2;
  const int head = lane / 4 + half * 8;
  const int column = (rank * kTilesPerBlock + tile) * 8 + lane % 4 * 2;
  const uint32_t shares = memory + Memory::kShares + head * kBlocks * 4;
  const uint32_t parts = memory + Memory::kPartInbox + threadIdx.x * 8;
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const float share = load_shared_float(shares + block * 4);
    const float2 x = load_shared_pair(parts + block * kTilesPerBlock * kTileBytes);
    sum.x += share * x.x;
    sum.y += share * x.y;
  }
  auto* target = problem.output + (token * kHeads + head) * kLatent + column;
  *reinterpret_cast<uint32_t*>(target) = pack_bf16(sum.x, sum.y);
}

}  // namespace dsa
