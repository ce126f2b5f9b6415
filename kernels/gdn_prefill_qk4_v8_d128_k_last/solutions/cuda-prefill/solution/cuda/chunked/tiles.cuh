// First kernel on Hopper: as `prepare`, with products of a warpgroup, for the second kernel there.
#pragma once

#include "inverse.cuh"
#include "ptx.cuh"
#include "record.cuh"
#include "tunables.h"
#include "wgmma.cuh"

namespace gdn::chunked {

/// q, k and v as matrices of tokens, states as matrices of columns of V; copies are of 64 rows and
/// 128 bytes of each.
struct Maps {
  TensorMap q, k, v;
  TensorMap state;  // undefined where there is none
  TensorMap new_state;
};

/// What the kernels here get.
struct WideParams : Params {
  Maps maps;
};

/// Shared memory of the four warps that work on one chunk and value head; a multiple of 1024 bytes.
struct Workbench {
  static constexpr int kHalfBytes = kChunk * 128;  // 64 tokens, 64 columns
  static constexpr int kMatrix = kPitch * kChunk * 4;
  // First k and q: 64 columns of k, the same of q, the others of k and of q.
  static constexpr int kLower = 0;          // L, at last two tiles: T and the factor of u in o
  static constexpr int kInverse = kMatrix;  // T
  static constexpr int kRest = 2 * kMatrix;  // what the factor of u is short of, a tile
  static constexpr int kTotal = kRest + TileRecord::kMatrixBytes;  // sums of log2-decays
  static constexpr int kStrength = kTotal + kChunk * 4;                  // beta
  static constexpr int kPlace = kStrength + kChunk * 4;
  static constexpr int kBarrier = kPlace + static_cast<int>(sizeof(Place));
  static constexpr int kBytes = (kBarrier + 8 + 1023) / 1024 * 1024;
  static_assert(4 * kHalfBytes <= 2 * kMatrix && kBarrier % 8 == 0);
  static_assert(2 * TileRecord::kMatrixBytes <= kMatrix);
};

/// One chunk and value head by four warps that meet at barrier `meeting`. `bench` is a multiple of
/// 1024, and `parity` is 0 for the first chunk there, then alternates. The last writes to the
/// record are under way still where `thread` is 0.
__device__ __forceinline__ void prepare_tiles_of(const WideParams& p, const Place& place,
                                                 int64_t slot, int head, char* bench,
                                                 uint32_t parity, int thread, int meeting) {
  using B = Workbench;
  const int lane = thread % 32;
  const int warp = uniform(thread / 32);
  const uint32_t base = shared_address(bench);
  const uint32_t barrier = base + B::kBarrier;
  const auto meet = [&] { warps_meet(meeting, kPrepareThreads); };
  if (thread == 0) {
    const int column = head / (kHeads / kQkHeads) * kWidth;
    const int row = static_cast<int>(place.first);
    barrier_expect(barrier, 4 * B::kHalfBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t target = base + 2 * half * B::kHalfBytes;
      copy_box(target, p.maps.k, column + 64 * half, row, barrier);
      copy_box(target + B::kHalfBytes, p.maps.q, column + 64 * half, row, barrier);
    }
  }

  float* total = reinterpret_cast<float*>(bench + B::kTotal);
  float* strength = reinterpret_cast<float*>(bench + B::kStrength);
  float sum = 0.0f;
  if (warp < 2) {
    Gates gates{0.0f, 0.0f};  // a token beyond the end neither decays nor writes
    if (thread < place.count) gates = gates_of(p, place.first + thread, head);
    sum = gates.log2_decay;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    strength[thread] = gates.strength;
    if (thread == 31) total[31] = sum;
  }
  meet();
  if (warp == 1) sum += total[31];
  if (thread < kChunk && thread != 31) total[thread] = sum;

  // Rows are tokens of k; columns are tokens of k, then of q.
  float c[64];
  barrier_wait(barrier, parity);
  products_begin();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const uint64_t rows = rows_at(base + step / 4 * 2 * B::kHalfBytes + step % 4 * 32);
    multiply_shared_128(c, rows, rows, step > 0);
  }
  products_commit();
  products_wait<0>();
  results_ready(c);
  meet();  // k and q are read, and `total` is complete

  const int g = lane / 4;
  const int t = lane % 4;
  float* lower = reinterpret_cast<float*>(bench + B::kLower);
  float* inverse = reinterpret_cast<float*>(bench + B::kInverse);
  TileRecord& record = reinterpret_cast<TileRecord*>(p.workspace)[slot * kHeads + head];
  const float own[2] = {total[16 * warp + g], total[16 * warp + g + 8]};
  const float beta[2] = {strength[16 * warp + g], strength[16 * warp + g + 8]};
  // A lane's row of 16 bytes in a block of 16 x 16, that is stored as it lies and transposed.
  const int block_row = lane % 8 + lane / 8 % 2 * 8;
  const int block_piece = lane / 16;
  const int other_row = lane % 8 + lane / 16 * 8;
  const int other_piece = lane / 8 % 2;
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > warp) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = 16 * block + 8 * half + 2 * t;
      const float2 other = *reinterpret_cast<const float2*>(total + column);
      const float* product = c + 8 * block + 4 * half;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float x0 = beta[r] * (exp2_short(own[r] - other.x) * product[2 * r]);
        float x1 = beta[r] * (exp2_short(own[r] - other.y) * product[2 * r + 1]);
        if (block == warp) {  // above the diagonal the exponent can be positive
          const int over = 8 * half + 2 * t - g - 8 * r;
          if (over >= 0) x0 = 0.0f;
          if (over >= -1) x1 = 0.0f;
        }
        *reinterpret_cast<float2*>(lower + (16 * warp + g + 8 * r) * kPitch + column) =
            make_float2(x0, x1);
      }
    }
  }
  __syncwarp();
  invert_diagonal(lower, inverse, warp, lane);
  if (thread < kChunk) {
    const float mine = total[thread];
    record.decay[thread] = exp2_short(mine);
    record.strength[thread] = strength[thread];
    record.left[thread] = exp2_short(total[kChunk - 1] - mine);
  }
  meet();
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
        const float2 factor = *reinterpret_cast<const float2*>(strength + 16 * block + column);
        const float2 x = *reinterpret_cast<const float2*>(
            inverse + (16 * warp + row) * kPitch + 16 * block + column);
        const bool below = block < warp;
        solve[i] = pack_bf16(below || row > column ? x.x * factor.x : 0.0f,
                             below || row > column + 1 ? x.y * factor.y : 0.0f);
      }
    }
    store_matrices(base + B::kLower + swizzled(16 * warp + block_row, 2 * block + block_piece),
                   solve);
  }
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    uint32_t attend[4] = {};
    uint32_t rest[4] = {};
    if (block >= warp) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 other =
            *reinterpret_cast<const float2*>(total + 16 * block + 8 * half + 2 * t);
        const float* product = c + 32 + 8 * block + 4 * half;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float x0 = exp2_short(other.x - own[r]) * product[2 * r];
          float x1 = exp2_short(other.y - own[r]) * product[2 * r + 1];
          if (block == warp) {
            const int over = 8 * half + 2 * t - g - 8 * r;
            if (over < 0) x0 = 0.0f;
            if (over < -1) x1 = 0.0f;
          }
          const uint32_t rounded = pack_bf16(p.scale * x0, p.scale * x1);
          attend[2 * half + r] = rounded;
          rest[2 * half + r] = pack_bf16(fmaf(p.scale, x0, -low_bf16(rounded)),
                                         fmaf(p.scale, x1, -high_bf16(rounded)));
        }
      }
    }
    const int at = swizzled(16 * block + other_row, 2 * warp + other_piece);
    store_matrices_transposed(base + B::kLower + TileRecord::kMatrixBytes + at, attend);
    store_matrices_transposed(base + B::kRest + at, rest);
  }
  order_before_async();
  meet();
  if (thread == 0) {
    static_assert(offsetof(TileRecord, attend) == TileRecord::kMatrixBytes);
    store_bulk(record.solve, base + B::kLower, 2 * TileRecord::kMatrixBytes);
    store_bulk(record.attend[1], base + B::kRest, TileRecord::kMatrixBytes);
  }
}

/// Brings to the second-level cache an eighth of the chunk's v, for the second kernel. (The states
/// as well are too much: 8192 tokens in 57 sequences took 4 us more.)
__device__ __forceinline__ void prefetch_values(const Params& p, const Place& place, int head) {
  constexpr int kRows = kChunk / kHeads;
  const int rest = place.count - head * kRows;
  if (rest > 0) {
    prefetch(p.v + (place.first + head * kRows) * (kHeads * kWidth),
             (rest < kRows ? rest : kRows) * (kHeads * kWidth * 2));
  }
}

/// One chunk and value head a block.
__global__ void __launch_bounds__(kPrepareThreads, KOPT_TEAMS)
    prepare_tiles(const __grid_constant__ WideParams p) {
#if GDN_WARPGROUPS
  extern __shared__ __align__(128) char shared[];
  char* bench = shared + (-shared_address(shared) & 1023u);
  const int64_t slot = blockIdx.x / kHeads;
  release_next_kernel();
  if (threadIdx.x == 0) {
    barrier_init(shared_address(bench) + Workbench::kBarrier, 1);
    barriers_visible();
  }
  const Place place = place_of(p, slot, *reinterpret_cast<Place*>(bench + Workbench::kPlace));
  if (place.count <= 0) return;
  if (threadIdx.x == 32) prefetch_values(p, place, blockIdx.x % kHeads);
  prepare_tiles_of(p, place, slot, blockIdx.x % kHeads, bench, 0, threadIdx.x, 1);
  if (threadIdx.x == 0) stores_read();
#endif
}

}  // namespace gdn::chunked
