// The weighted sum over the local experts of a token.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace moe {

constexpr int kCombineThreads = 224;
constexpr int kCombineBlocks = kHidden / 8 / kCombineThreads;  // of a token
constexpr int kAtOnce = 4;                                     // rows whose loads are under way

__device__ __forceinline__ void add_weighted(float (&sum)[8], float weight, const uint4& x) {
  const unsigned packed[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += weight * __uint_as_float(packed[i] << 16);
    sum[2 * i + 1] += weight * __uint_as_float(packed[i] & 0xffff0000u);
  }
}

/// Eight columns of one token for each thread; experts, and parts of the depth, in fixed order.
__global__ void __launch_bounds__(kCombineThreads) combine(Problem problem, Scratch scratch) {
  const int token = blockIdx.x / kCombineBlocks;
  const int column = (blockIdx.x % kCombineBlocks * kCombineThreads + threadIdx.x) * 8;
  // Routing ended before the kernel before this one began to work.
  const int many = __popc(__ldcg(scratch.local + token));
  const int64_t first = static_cast<int64_t>(token) * kTop;
  float weight[kTop];
  int row[kTop];
#pragma unroll
  for (int k = 0; k < kTop; ++k) {
    weight[k] = k < many ? __ldcg(scratch.weight + first + k) : 0.0f;
    row[k] = k < many ? __ldcg(scratch.place + first + k) : 0;
  }
  wait_for_previous_kernel();
  float sum[8] = {};
  if (many > 0) {
    const int parts = __ldcg(scratch.head + 1);
#pragma unroll
    for (int begin = 0; begin < kTop; begin += kAtOnce) {
      for (int part = 0; part < parts && begin < many; ++part) {
        const __nv_bfloat16* const result =
            scratch.result + part * scratch.result_stride + column;
        uint4 x[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (begin + k < many) {
            x[k] = __ldcg(reinterpret_cast<const uint4*>(
                result + static_cast<int64_t>(row[begin + k]) * kHidden));
          }
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (begin + k < many) add_weighted(sum, weight[begin + k], x[k]);
        }
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
