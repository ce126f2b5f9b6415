// Both projections for GPUs without products of warpgroups: a warp, 16 rows of weights, 8 rows of
// tokens, all straight from global memory. Made to be right, not fast.
#pragma once

#include "units.cuh"

namespace moe {

constexpr int kPlainTile = 8;
constexpr int kPlainSlices = slices_for(1);
constexpr int kPlainOutputs = outputs_for(1);
using PlainSchedule = Schedule<kPlainTile, 1>;
constexpr int kPlainWarps = 8;
constexpr int kPlainThreads = 32 * kPlainWarps;

__device__ __forceinline__ uint32_t word_at(const uint8_t* bytes) {
  return *reinterpret_cast<const uint32_t*>(bytes);
}

/// c += weights (16 x 128) rows (8 x 128)^T. The lane's rows of weights are `low` and `high`, its
/// row of a token is `token`.
__device__ __forceinline__ void multiply_block(float (&c)[4], const uint8_t* low,
                                               const uint8_t* high, const uint8_t* token,
                                               int begin, int end) {
  const int piece = threadIdx.x % 4 * 4;
  for (int k = begin + piece; k < end; k += 32) {
    const uint32_t a[4] = {word_at(low + k), word_at(high + k), word_at(low + k + 16),
                           word_at(high + k + 16)};
    const uint32_t b[2] = {word_at(token + k), word_at(token + k + 16)};
    mma_fp8(c, a, b);
  }
}

__global__ void __launch_bounds__(kPlainThreads) plain_first(Problem problem, Scratch scratch) {
  __shared__ float largest[kPlainWarps][kPlainTile];
  wait_for_previous_kernel();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const PlainSchedule schedule = PlainSchedule::read(scratch, false);
  for (int index = blockIdx.x; index < schedule.all_tiles * kPlainSlices; index += gridDim.x) {
    const Unit unit = schedule.unit(index);
    const int channel = unit.place * kPieceChannels + warp * 8 + lane / 4;
    const uint8_t* const up =
        problem.w13 + (static_cast<int64_t>(unit.expert) * 2 * kInner + channel) * kHidden;
    const uint8_t* const gate = up + static_cast<int64_t>(kInner) * kHidden;
    const int row = lane / 4;  // rows that are not there repeat the last one, and are not stored
    const int own = scratch.row_token[unit.row + min(row, unit.rows - 1)];
    const uint8_t* const token = problem.tokens_fp8 + static_cast<int64_t>(own) * kHidden;
    const int left = lane % 4 * 2;
    const int token_left = scratch.row_token[unit.row + min(left, unit.rows - 1)];
    const int token_right = scratch.row_token[unit.row + min(left + 1, unit.rows - 1)];
    const float* const up_scale =
        problem.w13_scale + (unit.expert * 2 * kInnerBlocks + unit.place / 2) * kHiddenBlocks;
    const float* const gate_scale = up_scale + kInnerBlocks * kHiddenBlocks;
    float sum[4] = {};
    for (int block = 0; block < kHiddenBlocks; ++block) {
      float c[4] = {};
      multiply_block(c, up, gate, token, block * kBlock, block * kBlock + kBlock);
      const float* const scale =
          problem.tokens_scale + static_cast<int64_t>(block) * problem.tokens;
      const float x = scale[token_left];
      const float y = scale[token_right];
      sum[0] += c[0] * (x * up_scale[block]);
      sum[1] += c[1] * (y * up_scale[block]);
      sum[2] += c[2] * (x * gate_scale[block]);
      sum[3] += c[3] * (y * gate_scale[block]);
    }
    float value[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      value[i] = sum[i] * (sum[2 + i] / (1.0f + __expf(-sum[2 + i])));
      float most = fabsf(value[i]);
      for (int step = 4; step < 32; step *= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
      }
      if (lane < 4) largest[warp][left + i] = most;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float most = 1e-30f;
      for (int w = 0; w < kPlainWarps; ++w) most = fmaxf(most, largest[w][left + i]);
      if (left + i < unit.rows) {
        const int64_t target = unit.row + left + i;
        scratch.inner[target * kInner + channel] =
            static_cast<uint8_t>(pack_fp8(value[i] * (kLargest / most), 0.0f));
        if (warp == 0 && lane < 4) {
          scratch.inner_scale[target * kPlainSlices + unit.place] = most * (1.0f / kLargest);
        }
      }
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kPlainThreads) plain_second(Problem problem, Scratch scratch) {
  wait_for_previous_kernel();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (blockIdx.x == 0 && threadIdx.x == 0) scratch.head[1] = 1;
  const PlainSchedule schedule = PlainSchedule::read(scratch, false);
  for (int index = blockIdx.x; index < schedule.all_tiles * kPlainOutputs; index += gridDim.x) {
    const Unit unit = schedule.unit(schedule.all_tiles * kPlainSlices + index);
    const int channel = unit.place * kPieceRows + warp * 16 + lane / 4;
    const uint8_t* const weights =
        problem.w2 + (static_cast<int64_t>(unit.expert) * kHidden + channel) * kInner;
    const uint8_t* const token =
        scratch.inner + static_cast<int64_t>(unit.row + min(lane / 4, unit.rows - 1)) * kInner;
    const int left = lane % 4 * 2;
    const float* const scale_left =
        scratch.inner_scale +
        static_cast<int64_t>(unit.row + min(left, unit.rows - 1)) * kPlainSlices;
    const float* const scale_right =
        scratch.inner_scale +
        static_cast<int64_t>(unit.row + min(left + 1, unit.rows - 1)) * kPlainSlices;
    const float* const weight_scale =
        problem.w2_scale + (unit.expert * kHiddenBlocks + unit.place) * kInnerBlocks;
    float sum[4] = {};
    for (int slice = 0; slice < kPlainSlices; ++slice) {
      float c[4] = {};
      multiply_block(c, weights, weights + 8 * kInner, token, slice * kPieceChannels,
                     slice * kPieceChannels + kPieceChannels);
      const float x = scale_left[slice] * weight_scale[slice / 2];
      const float y = scale_right[slice] * weight_scale[slice / 2];
      sum[0] += c[0] * x;
      sum[1] += c[1] * y;
      sum[2] += c[2] * x;
      sum[3] += c[3] * y;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = left + i % 2;
      if (r < unit.rows) {
        scratch.result[static_cast<int64_t>(unit.row + r) * kHidden + channel + i / 2 * 8] =
            __float2bfloat16(sum[i]);
      }
    }
  }
}

}  // namespace moe
