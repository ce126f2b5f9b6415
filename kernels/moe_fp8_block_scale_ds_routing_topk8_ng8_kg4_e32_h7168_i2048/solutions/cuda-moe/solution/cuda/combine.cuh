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
  const int lane = threadIdx.x % 32;
  const int64_t own = static_cast<int64_t>(token) * kTop + lane % kTop;
  const float weights = __ldcg(scratch.weight + own);
  const int rows = __ldcg(scratch.place + own);
  wait_for_previous_kernel();
  float sum[8] = {};
  if (many > 0) {
    const int parts = __ldcg(scratch.head + 1);
    for (int begin = 0; begin < many; begin += kAtOnce) {
      for (int part = 0; part < parts; ++part) {
        const __nv_bfloat16* const result =
            scratch.result + part * scratch.result_stride + column;
        uint4 x[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const int64_t row = __shfl_sync(kAllLanes, rows, begin + k);
          if (begin + k < many) {
            x[k] = __ldcg(reinterpret_cast<const uint4*>(result + row * kHidden));
          }
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const float weight = __shfl_sync(kAllLanes, weights, begin + k);
          if (begin + k < many) add_weighted(sum, weight, x[k]);
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
