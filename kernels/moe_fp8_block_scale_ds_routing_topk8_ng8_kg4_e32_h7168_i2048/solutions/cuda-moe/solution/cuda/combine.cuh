// The weighted sum over the local experts of a token.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace moe {

constexpr int kCombineThreads = 224;
constexpr int kCombineBlocks = kHidden / 8 / kCombineThreads;  // of a token

/// Eight columns of one token for each thread; experts, and parts of the depth, in fixed order.
__global__ void __launch_bounds__(kCombineThreads) combine(Problem problem, Scratch scratch) {
  wait_for_previous_kernel();
  const int token = blockIdx.x / kCombineBlocks;
  const int column = (blockIdx.x % kCombineBlocks * kCombineThreads + threadIdx.x) * 8;
  const int many = __popc(scratch.local[token]);
  const int parts = scratch.head[1];
  float sum[8] = {};
  for (int k = 0; k < many; ++k) {
    const float weight = scratch.weight[static_cast<int64_t>(token) * kTop + k];
    const int64_t row = scratch.place[static_cast<int64_t>(token) * kTop + k];
    for (int part = 0; part < parts; ++part) {
      const uint4 x = *reinterpret_cast<const uint4*>(
          scratch.result + part * scratch.result_stride + row * kHidden + column);
      const unsigned packed[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[2 * i] += weight * __uint_as_float(packed[i] << 16);
        sum[2 * i + 1] += weight * __uint_as_float(packed[i] & 0xffff0000u);
      }
    }
  }
  uint4 y;
  y.x = pack_bf16(sum[0], sum[1]);
  y.y = pack_bf16(sum[2], sum[3]);
  y.z = pack_bf16(sum[4], sum[5]);
  y.w = pack_bf16(sum[6], sum[7]);
  *reinterpret_cast<uint4*>(problem.output + static_cast<int64_t>(token) * kHidden + column) = y;
}

}  // namespace moe
