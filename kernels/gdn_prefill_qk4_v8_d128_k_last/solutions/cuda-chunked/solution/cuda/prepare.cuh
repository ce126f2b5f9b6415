// First kernel: what chunks need of their own q, k and gates. No chunk waits for another.
#pragma once

#include <type_traits>

#include "problem.cuh"
#include "ptx.cuh"
#include "tunables.h"
#include "wgmma.cuh"

namespace gdn {

constexpr int kPrepareThreads = 128;
constexpr int kPitch = kRowBytes / 4;  // floats of a row of the 64 x 64 matrices

/// Bounds of the sums of log2-decays in a chunk, so that their differences stay exact enough:
/// 2^-120 is nothing beside any other number here.
constexpr float kLeastLog2Decay = -120.0f;

struct Gates {
  float log2_decay;
  float strength;
};

__device__ __forceinline__ Gates gates_of(const Params& p, int64_t token, int head) {
  const int64_t at = token * kHeads + head;
  const float x = __bfloat162float(p.a[at]) + p.dt_bias[head];
  const float write = __bfloat162float(p.b[at]);
  const float step = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
  const float decay = -expf(p.A_log[head]) * step * 1.4426950408889634f;
  return {fmaxf(decay, kLeastLog2Decay), 1.0f / (1.0f + expf(-write))};
}

/// Tokens of a slot.
struct Place {
  int64_t first;  // token
  int count;      // tokens; at most 0 where the slot is not used
};

/// Shared memory of the four warps that work on one chunk and value head.
template <class R>
struct Workbench {
  static constexpr int kTiles = std::is_same_v<R, TileRecord> ? 2 : 0;
  // Rows of k, later L, later T as a tile; rows of q, later T.
  char tiles[2][kTileBytes];
  char attend[kTiles * TileRecord::kMatrixBytes + 16];  // the factor of u in o as tiles
  float total[kChunk];     // sums of log2-decays
  float strength[kChunk];  // beta
  Place found;
};

/// Searches with all threads of a block.
__device__ __forceinline__ Place place_of(const Params& p, int64_t slot, Place& found) {
  for (int n = threadIdx.x; n < p.sequences; n += kPrepareThreads) {
    const int64_t begin = p.cu_seqlens[n];
    const int64_t end = p.cu_seqlens[n + 1];
    if (slot_of(begin, n) <= slot && slot < slot_of(end, n + 1)) {
      const int64_t first = begin + (slot - slot_of(begin, n)) * kChunk;
      const int64_t rest = end - first;
      found = {first, static_cast<int>(rest < kChunk ? rest : kChunk)};
    }
  }
  __syncthreads();
  return found;
}

/// Inverse of I + L for one 16 x 16 diagonal block, by substitution; lane j % 16 has column j.
__device__ __forceinline__ void invert_diagonal(const float* lower, float* inverse, int block,
                                                int lane) {
  const int column = lane % 16;
  const float* rows = lower + block * 16 * (kPitch + 1);
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int k4 = 0; k4 < i; k4 += 4) {
      const float4 l = *reinterpret_cast<const float4*>(rows + i * kPitch + k4);
      sum = fmaf(-l.x, x[k4], sum);
      if (k4 + 1 < i) sum = fmaf(-l.y, x[k4 + 1], sum);
      if (k4 + 2 < i) sum = fmaf(-l.z, x[k4 + 2], sum);
      if (k4 + 3 < i) sum = fmaf(-l.w, x[k4 + 3], sum);
    }
    x[i] = sum;
  }
  if (lane < 16) {
    float* target = inverse + block * 16 * (kPitch + 1) + column;
#pragma unroll
    for (int i = 0; i < 16; ++i) target[i * kPitch] = x[i];
  }
}

/// A operand (16 x 8) at `matrix`. Columns 2 t and 2 t + 1 stand where the instruction has t and
/// t + 4: any order of the summed index will do, and an accumulator has this one.
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const float* matrix, int g, int t) {
  const float2 upper = *reinterpret_cast<const float2*>(matrix + g * kPitch + 2 * t);
  const float2 below = *reinterpret_cast<const float2*>(matrix + (g + 8) * kPitch + 2 * t);
  a[0] = to_tf32(upper.x);
  a[1] = to_tf32(below.x);
  a[2] = to_tf32(upper.y);
  a[3] = to_tf32(below.y);
}

/// c += a b with b (8 x 8) at `matrix`, in the same order of the summed index.
__device__ __forceinline__ void multiply_b(float (&c)[4], const uint32_t (&a)[4],
                                           const float* matrix, int g, int t) {
  const float* at = matrix + 2 * t * kPitch + g;
  mma_tf32(c, a, to_tf32(at[0]), to_tf32(at[kPitch]));
}

/// inverse[rows, columns] = -inverse[rows, middle] lower[middle, below] inverse[below, columns]
/// for 16 rows from `row` and kTiles * 8 columns from `column`; `middle` starts at `origin` and
/// `below` at `origin - kSize`. Only the parts of the two inverses that are not zero are read.
template <int kSize, int kTiles>
__device__ __forceinline__ void invert_below(const float* lower, float* inverse, int origin,
                                             int row, int column, int g, int t) {
  constexpr int kSteps = kSize / 8;
  const int below = origin - kSize;
  float product[kSteps][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (origin + step * 8 >= row + 16) continue;
    uint32_t a[4];
    load_a(a, inverse + row * kPitch + origin + step * 8, g, t);
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      multiply_b(product[n], a, lower + (origin + step * 8) * kPitch + below + n * 8, g, t);
    }
  }
  float result[kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (below + step * 8 + 8 <= column / 16 * 16) continue;
    const uint32_t a[4] = {to_tf32(-product[step][0]), to_tf32(-product[step][2]),
                           to_tf32(-product[step][1]), to_tf32(-product[step][3])};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      multiply_b(result[n], a, inverse + (below + step * 8) * kPitch + column + n * 8, g, t);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    float* target = inverse + (row + g) * kPitch + column + n * 8 + 2 * t;
    *reinterpret_cast<float2*>(target) = make_float2(result[n][0], result[n][1]);
    *reinterpret_cast<float2*>(target + 8 * kPitch) = make_float2(result[n][2], result[n][3]);
  }
}

/// Gates, T = (I + tril(beta D k k^T, -1))^-1 and q k^T of one chunk and value head, by four warps
/// that meet at `barrier`. The last writes are under way still where `thread` is 0.
template <class R>
__device__ __forceinline__ void prepare_chunk(const Params& p, const Place& place, int64_t slot,
                                              int head, Workbench<R>& bench, int thread,
                                              int barrier) {
  constexpr bool kTiled = std::is_same_v<R, TileRecord>;
  const int lane = thread % 32;
  const int warp = uniform(thread / 32);
  float* total = bench.total;
  float* strength = bench.strength;
  const uint32_t attend_tiles = shared_address(bench.attend);
  const auto meet = [&] { warps_meet(barrier, kPrepareThreads); };
  const int key_head = head / (kHeads / kKeyHeads);
  const uint32_t k_tile = shared_address(bench.tiles[0]);
  const uint32_t q_tile = shared_address(bench.tiles[1]);
  {
    const int64_t source =
        ((place.first + thread / 16) * kKeyHeads + key_head) * kWidth + thread % 16 * 8;
    const __nv_bfloat16* k = p.k + source;
    const __nv_bfloat16* q = p.q + source;
    const uint32_t target = thread / 16 * kRowBytes + thread % 16 * 16;
    constexpr int kRows = kPrepareThreads / 16;
#pragma unroll
    for (int row = 0; row < kChunk; row += kRows) {
      const bool valid = row + thread / 16 < place.count;
      copy_async(k_tile + target + row * kRowBytes, k + row * kKeyHeads * kWidth, valid);
      copy_async(q_tile + target + row * kRowBytes, q + row * kKeyHeads * kWidth, valid);
    }
  }

  float sum = 0.0f;
  if (thread < kChunk) {
    Gates gates{0.0f, 0.0f};  // a token beyond the end neither decays nor writes
    if (thread < place.count) {
      gates = gates_of(p, place.first + thread, head);
    }
    sum = gates.log2_decay;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    total[thread] = sum;
    strength[thread] = gates.strength;
  }
  copy_async_wait_all();
  meet();
  const float first_half = total[31];
  meet();
  if (warp == 1) total[thread] = sum + first_half;

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
  meet();  // rows are read, and `total` is complete

  const int g = lane / 4;
  const int t = lane % 4;
  float* lower = reinterpret_cast<float*>(bench.tiles[0]);
  float* inverse = reinterpret_cast<float*>(bench.tiles[1]);
  R& record = reinterpret_cast<R*>(p.workspace)[slot * kHeads + head];
  // Of a lane's row of 16 bytes in a block of 16 x 16, as accumulators lie.
  const int block_row = lane % 8 + lane / 8 % 2 * 8;
  const int block_piece = lane / 16;
  // 16 x 16 of a product times the decays from column to row; zero above the diagonal, and on it
  // where `strict`.
  const auto decayed = [&](float (&x)[2][4], const float (&product)[8][4], int row_block, int block,
                           bool strict) {
    const float* own = total + 16 * row_block + g;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = 2 * block + half;
      const float2 other = *reinterpret_cast<const float2*>(total + 8 * n + 2 * t);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        x[half][2 * r] = exp2_short(own[8 * r] - other.x) * product[n][2 * r];
        x[half][2 * r + 1] = exp2_short(own[8 * r] - other.y) * product[n][2 * r + 1];
      }
    }
    if (block < row_block) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Above the diagonal the exponent can be positive.
      const int over = 8 * (i / 4) + 2 * t + i % 2 - (g + 8 * (i / 2 % 2));
      if (over > 0 || (strict && over == 0)) x[i / 4][i % 4] = 0.0f;
    }
  };
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    uint32_t attend[4] = {};
    uint32_t rest[4] = {};
    if (block <= q_block) {
      float x[2][4];
      decayed(x, qk, q_block, block, false);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x0 = x[i / 2][i % 2 * 2];
        const float x1 = x[i / 2][i % 2 * 2 + 1];
        attend[i] = pack_bf16(p.scale * x0, p.scale * x1);
        rest[i] = pack_bf16(fmaf(p.scale, x0, -low_bf16(attend[i])),
                            fmaf(p.scale, x1, -high_bf16(attend[i])));
      }
    }
    if constexpr (kTiled) {
      const int at = swizzled(16 * q_block + block_row, 2 * block + block_piece);
      store_matrices(attend_tiles + at, attend);
      store_matrices(attend_tiles + TileRecord::kMatrixBytes + at, rest);
    } else if (block <= q_block) {
      const int at = block_at(q_block, block);
      record.attend[0][at][lane] = make_uint4(attend[0], attend[1], attend[2], attend[3]);
      record.attend[1][at][lane] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
    }
  }
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > k_block) continue;
    float x[2][4];
    decayed(x, kk, k_block, block, true);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * k_block + g + 8 * (i % 2);
      const float beta = strength[row];
      *reinterpret_cast<float2*>(lower + row * kPitch + 16 * block + 8 * (i / 2) + 2 * t) =
          make_float2(beta * x[i / 2][i % 2 * 2], beta * x[i / 2][i % 2 * 2 + 1]);
    }
  }
  if (thread < kChunk) {
    const float own = total[thread];
    record.decay[thread] = exp2_short(own);
    record.strength[thread] = strength[thread];
    record.left[thread] = exp2_short(total[kChunk - 1] - own);
  }
  __syncwarp();
  invert_diagonal(lower, inverse, k_block, lane);
  if constexpr (kTiled) order_before_async();
  meet();
  if constexpr (kTiled) {
    if (thread == 0) store_bulk(record.attend, attend_tiles, sizeof(record.attend));
  }
  const int pair = warp / 2;
  const int side = warp % 2;
  invert_below<16, 1>(lower, inverse, 32 * pair + 16, 32 * pair + 16, 32 * pair + 8 * side, g, t);
  meet();
  invert_below<32, 2>(lower, inverse, 32, 32 + 16 * pair, 16 * side, g, t);
  meet();

#pragma unroll
  for (int block = 0; block < 4; ++block) {
    uint32_t solve[4] = {};
    if (block <= warp) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i % 2);
        const int column = 8 * (i / 2) + 2 * t;
        const float2 beta = *reinterpret_cast<const float2*>(strength + 16 * block + column);
        const float2 x = *reinterpret_cast<const float2*>(
            inverse + (16 * warp + row) * kPitch + 16 * block + column);
        const bool below = block < warp;
        solve[i] = pack_bf16(below || row > column ? x.x * beta.x : 0.0f,
                             below || row > column + 1 ? x.y * beta.y : 0.0f);
      }
    }
    if constexpr (kTiled) {
      store_matrices(k_tile + swizzled(16 * warp + block_row, 2 * block + block_piece), solve);
    } else if (block <= warp) {
      record.solve[block_at(warp, block)][lane] =
          make_uint4(solve[0], solve[2], solve[1], solve[3]);
    }
  }
  if constexpr (kTiled) {
    order_before_async();
    meet();
    if (thread == 0) {
      store_bulk(record.solve, k_tile, sizeof(record.solve));
    }
  }
}

/// One chunk and value head a block.
template <class R>
__global__ void __launch_bounds__(kPrepareThreads, KOPT_PREPARE_BLOCKS)
    prepare(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char shared[];
  auto& bench = *reinterpret_cast<Workbench<R>*>(shared);
  const int64_t slot = blockIdx.x / kHeads;
  release_next_kernel();
  const Place place = place_of(p, slot, bench.found);
  if (place.count <= 0) return;
  prepare_chunk<R>(p, place, slot, blockIdx.x % kHeads, bench, threadIdx.x, 1);
  if (std::is_same_v<R, TileRecord> && threadIdx.x == 0) stores_wait();
}

}  // namespace gdn
