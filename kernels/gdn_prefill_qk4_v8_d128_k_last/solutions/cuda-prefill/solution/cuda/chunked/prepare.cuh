// First kernel: what chunks need of their own q, k and gates. No chunk waits for another.
#pragma once

#include "inverse.cuh"
#include "ptx.cuh"
#include "record.cuh"
#include "tunables.h"

namespace gdn::chunked {

/// One chunk and value head a block: gates, T = (I + tril(beta D k k^T, -1))^-1, and q k^T.
__global__ void __launch_bounds__(kPrepareThreads, KOPT_PREPARE_BLOCKS)
    prepare(const __grid_constant__ Params p) {
  // Rows of k, later L; rows of q, later T.
  __shared__ __align__(128) char tiles[2][kTileBytes];
  __shared__ float total[kChunk];     // sums of log2-decays
  __shared__ float strength[kChunk];  // beta
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int head = blockIdx.x % kHeads;
  const int64_t slot = blockIdx.x / kHeads;
  release_next_kernel();

  __shared__ Place found;
  const Place place = place_of(p, slot, found);
  if (place.count <= 0) return;
  const int key_head = head / (kHeads / kQkHeads);
  const uint32_t k_tile = shared_address(tiles[0]);
  const uint32_t q_tile = shared_address(tiles[1]);
  {
    const int thread = threadIdx.x;
    const int64_t source =
        ((place.first + thread / 16) * kQkHeads + key_head) * kWidth + thread % 16 * 8;
    const __nv_bfloat16* k = p.k + source;
    const __nv_bfloat16* q = p.q + source;
    const uint32_t target = thread / 16 * kRowBytes + thread % 16 * 16;
    constexpr int kRows = kPrepareThreads / 16;
#pragma unroll
    for (int row = 0; row < kChunk; row += kRows) {
      const bool valid = row + thread / 16 < place.count;
      copy_async(k_tile + target + row * kRowBytes, k + row * kQkHeads * kWidth, valid);
      copy_async(q_tile + target + row * kRowBytes, q + row * kQkHeads * kWidth, valid);
    }
  }

  float sum = 0.0f;
  if (threadIdx.x < kChunk) {
    Gates gates{0.0f, 0.0f};  // a token beyond the end neither decays nor writes
    if (static_cast<int>(threadIdx.x) < place.count) {
      gates = gates_of(p, place.first + threadIdx.x, head);
    }
    sum = gates.log2_decay;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    total[threadIdx.x] = sum;
    strength[threadIdx.x] = gates.strength;
  }
  copy_async_wait_all();
  __syncthreads();
  const float first_half = total[31];
  __syncthreads();
  if (warp == 1) total[threadIdx.x] = sum + first_half;

  // 16 rows of k k^T and 16 rows of q k^T, in 16 x 16 blocks up to the diagonal: five in all.
  const int k_block = 3 - warp;
  const int q_block = warp;
  float kk[8][4] = {};
  float qk[8][4] = {};
  const uint32_t a_offset = lane % 16 * kRowBytes + lane / 16 * 16;
  const uint32_t b_offset = (lane % 8 + lane / 16 * 8) * kRowBytes + lane / 8 % 2 * 16;
  const uint32_t k_rows_at = k_tile + k_block * 16 * kRowBytes + a_offset;
  const uint32_t q_rows_at = q_tile + q_block * 16 * kRowBytes + a_offset;
  // Operands of the next step are fetched ahead if there are registers for that.
  constexpr int kBuffers = KOPT_PREPARE_BLOCKS > 4 ? 1 : 2;
  uint32_t rows[kBuffers][6][4];
  const auto fetch = [&](int step) {
    uint32_t(&next)[6][4] = rows[step % kBuffers];
    load_matrices(next[4], k_rows_at + step * 32);
    load_matrices(next[5], q_rows_at + step * 32);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      load_matrices(next[block], k_tile + b_offset + block * 16 * kRowBytes + step * 32);
    }
  };
  if (kBuffers == 2) fetch(0);
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    if (kBuffers == 1) fetch(step);
    if (kBuffers == 2 && step < 7) fetch(step + 1);
    const uint32_t(&now)[6][4] = rows[step % kBuffers];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t b0 = now[n / 2][n % 2 * 2];
      const uint32_t b1 = now[n / 2][n % 2 * 2 + 1];
      if (n / 2 <= k_block) mma_bf16(kk[n], now[4][0], now[4][1], now[4][2], now[4][3], b0, b1);
      if (n / 2 <= q_block) mma_bf16(qk[n], now[5][0], now[5][1], now[5][2], now[5][3], b0, b1);
    }
  }
  __syncthreads();  // rows are read, and `total` is complete

  const int g = lane / 4;
  const int t = lane % 4;
  float* lower = reinterpret_cast<float*>(tiles[0]);
  float* inverse = reinterpret_cast<float*>(tiles[1]);
  Record& record = reinterpret_cast<Record*>(p.workspace)[slot * kHeads + head];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > q_block) continue;
    uint32_t attend[4];
    uint32_t rest[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = 2 * block + half;
      const int column = 8 * n + 2 * t;
      const float2 column_total = *reinterpret_cast<const float2*>(total + column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = 16 * q_block + g + 8 * r;
        const float own = total[i];
        // Above the diagonal the exponent can be positive, and the factor is not used.
        const float x0 = i >= column ? exp2_short(own - column_total.x) * qk[n][2 * r] : 0.0f;
        const float x1 = i > column ? exp2_short(own - column_total.y) * qk[n][2 * r + 1] : 0.0f;
        const uint32_t rounded = pack_bf16(p.scale * x0, p.scale * x1);
        attend[2 * half + r] = rounded;
        rest[2 * half + r] = pack_bf16(fmaf(p.scale, x0, -low_bf16(rounded)),
                                       fmaf(p.scale, x1, -high_bf16(rounded)));
      }
    }
    const int at = block_at(q_block, block);
    record.attend[0][at][lane] = make_uint4(attend[0], attend[1], attend[2], attend[3]);
    record.attend[1][at][lane] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
  }
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > k_block) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = 2 * block + half;
      const int column = 8 * n + 2 * t;
      const float2 column_total = *reinterpret_cast<const float2*>(total + column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = 16 * k_block + g + 8 * r;
        const float own = total[i];
        const float beta = strength[i];
        const float decay0 = exp2_short(own - column_total.x);
        const float decay1 = exp2_short(own - column_total.y);
        const float l0 = i > column ? beta * decay0 * kk[n][2 * r] : 0.0f;
        const float l1 = i > column + 1 ? beta * decay1 * kk[n][2 * r + 1] : 0.0f;
        *reinterpret_cast<float2*>(lower + i * kPitch + column) = make_float2(l0, l1);
      }
    }
  }
  if (threadIdx.x < kChunk) {
    const float own = total[threadIdx.x];
    record.decay[threadIdx.x] = exp2_short(own);
    record.strength[threadIdx.x] = strength[threadIdx.x];
    record.left[threadIdx.x] = exp2_short(total[kChunk - 1] - own);
  }
  __syncwarp();
  invert_diagonal(lower, inverse, k_block, lane);
  __syncthreads();
  const int pair = warp / 2;
  const int side = warp % 2;
  invert_below<16, 1>(lower, inverse, 32 * pair + 16, 32 * pair + 16, 32 * pair + 8 * side, g, t);
  __syncthreads();
  invert_below<32, 2>(lower, inverse, 32, 32 + 16 * pair, 16 * side, g, t);
  __syncthreads();

#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > warp) continue;
    uint32_t solve[4];
    const int row = 16 * warp + g;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = 16 * block + 8 * half + 2 * t;
      const float2 beta = *reinterpret_cast<const float2*>(strength + column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = row + 8 * r;
        const float2 x = *reinterpret_cast<const float2*>(inverse + i * kPitch + column);
        solve[half + 2 * r] = pack_bf16(i > column ? x.x * beta.x : 0.0f,
                                        i > column + 1 ? x.y * beta.y : 0.0f);
      }
    }
    record.solve[block_at(warp, block)][lane] = make_uint4(solve[0], solve[1], solve[2], solve[3]);
  }
}

}  // namespace gdn::chunked
