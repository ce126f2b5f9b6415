// Both projections in one kernel: weights stream through shared memory, whichever projection they
// are of.
//
// Weights are the first factor of products (64 rows of each piece a warpgroup), rows of tokens the
// second: few rows then cost little. One warp fetches weights, three fetch rows (which lie
// anywhere) and scales, two warpgroups multiply. Weights of the second projection are fetched
// while the first is still under way; only its rows wait.
#pragma once

#include <type_traits>

#include "maps.cuh"
#include "units.cuh"
#include "wgmma.cuh"

namespace moe {

constexpr int kWorkers = 256;  // threads of two warpgroups
constexpr int kLoaders = 96;
constexpr int kStreamThreads = kWorkers + 32 + kLoaders;
constexpr int kQueue = 4;  // units that are known ahead
constexpr int kWorkerWarps = kWorkers / 32;
constexpr int kLoaderWarps = kLoaders / 32;
constexpr int kPieceBytes = kPieceRows * kBlock;

struct StreamParams {
  TensorMap first;
  TensorMap second;
  Problem problem;
  Scratch scratch;
};

template <int kTile, int kPieces>
struct Stage {
  alignas(1024) unsigned char weights[kPieces * kPieceBytes];
  unsigned char rows[kTile * kBlock];
};

/// Shared memory of a block with tiles of kTile rows and units of kPieces pieces.
template <int kTile_, int kStages_, int kPieces_>
struct Stream {
  static constexpr int kTile = kTile_;
  static constexpr int kStages = kStages_;
  static constexpr int kPieces = kPieces_;
  using Units = Schedule<kTile, kPieces>;
  static constexpr int kWorkRegisters = kPieces == 1 ? 216 : 224;
  static constexpr int kFetchRegisters = kPieces == 1 ? 72 : 56;
  static constexpr bool kMaySplit = kTile <= 32;
  static constexpr int kSlices = slices_for(kPieces);
  static constexpr int kScales = 2 / kPieces;  // of a row and 128 channels in the second projection

  Stage<kTile, kPieces> stages[kStages];
  alignas(16) float scales[kStages][kScales * kTile];
  float weight_scales[kStages][2];
  float largest[2][kWorkerWarps][kTile];
  Unit units[kQueue];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t unit_full[kQueue];
  uint64_t unit_empty[kQueue];
  int arrivals;
};

/// Where a ring of kSize places is.
template <int kSize>
struct Turn {
  int at = 0;
  unsigned phase = 0;

  __device__ void next() {
    if (++at == kSize) {
      at = 0;
      phase ^= 1;
    }
  }
};

/// How many columns a product for so many rows has.
template <int kTile>
__device__ __forceinline__ int columns_for(int rows) {
  if (rows <= 32 && kTile < 128) return rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
  return rows <= 64 || kTile <= 64 ? 64 : 128;
}

#if MOE_WARPGROUPS

/// One warp: takes units, tells the others, fetches weights.
template <class S>
__device__ void fetch_weights(const StreamParams& params, S& shared) {
  const auto schedule = S::Units::read(params.scratch, S::kMaySplit);
  const bool leader = threadIdx.x % 32 == 0;
  if (leader && blockIdx.x == 0) params.scratch.head[1] = schedule.second_parts;
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  int index = leader ? atomicAdd(params.scratch.head, 1) : 0;
  while (true) {
    const Unit unit = schedule.unit(__shfl_sync(kAllLanes, index, 0));
    if (leader) {
      if (unit.phase != 2) index = atomicAdd(params.scratch.head, 1);
      barrier_wait(shared_address(&shared.unit_empty[queue.at]), queue.phase ^ 1);
      shared.units[queue.at] = unit;
      barrier_arrive(shared_address(&shared.unit_full[queue.at]));
    }
    queue.next();
    if (unit.phase == 2) break;
    if (leader) {
      for (int block = unit.begin; block < unit.end; ++block) {
        const uint32_t full = shared_address(&shared.full[turn.at]);
        barrier_wait(shared_address(&shared.empty[turn.at]), turn.phase ^ 1);
        barrier_expect(full, S::kPieces * kPieceBytes);
        const uint32_t target = shared_address(shared.stages[turn.at].weights);
#pragma unroll
        for (int piece = 0; piece < S::kPieces; ++piece) {
          const int place = unit.place * S::kPieces + piece;
          if (unit.phase == 0) {
            copy_box(target + piece * kPieceBytes, params.first, block * kBlock, 0, 0,
                     place * (kPieceChannels / 8), unit.expert, full);
          } else {
            copy_box(target + piece * kPieceBytes, params.second, block * kBlock,
                     unit.expert * kHidden + place * kPieceRows, full);
          }
        }
        turn.next();
      }
    }
    __syncwarp();
  }
  release_next_kernel();
}

template <class S>
__device__ __forceinline__ Unit next_unit(S& shared, Turn<kQueue>& queue) {
  barrier_wait(shared_address(&shared.unit_full[queue.at]), queue.phase);
  const Unit unit = shared.units[queue.at];
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.unit_empty[queue.at]));
  queue.next();
  return unit;
}

/// Three warps: fetch rows and scales. Rows beyond the last repeat it; nobody stores their results.
template <class S>
__device__ void fetch_rows(const StreamParams& params, S& shared) {
  constexpr int kAtOnce = kLoaders / 8;  // rows
  constexpr int kEach = (S::kTile + kAtOnce - 1) / kAtOnce;
  constexpr int kScalesEach = (S::kTile + kLoaders - 1) / kLoaders;
  const Problem& problem = params.problem;
  const Scratch& scratch = params.scratch;
  const int loader = threadIdx.x - kWorkers - 32;
  const int piece = loader % 8;
  const int row = loader / 8;
  // From one row of a lane to the next, 12 further, the swizzle changes in one bit.
  const uint32_t even = row * kBlock + (piece ^ row % 8) * 16;
  const uint32_t odd = even ^ 64;
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  while (true) {
    const Unit unit = next_unit(shared, queue);
    if (unit.phase == 2) break;
    const bool second = unit.phase == 1;
    const int columns = columns_for<S::kTile>(unit.rows);
    const auto source_of = [&](int r) {
      const int own = unit.row + min(r, unit.rows - 1);
      return static_cast<uint32_t>(second ? own : __ldcg(scratch.row_token + own));
    };
    uint32_t source[kEach];  // in 16 bytes
    uint32_t scale[kScalesEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * kAtOnce < columns) {
        source[i] = source_of(row + i * kAtOnce) * ((second ? kInner : kHidden) / 16) + piece;
      }
    }
#pragma unroll
    for (int i = 0; i < kScalesEach; ++i) {
      scale[i] = source_of(loader + i * kLoaders) * (second ? S::kSlices : 1);
    }
    const float* weight_scale;
    if (second) {
      const int output = unit.place * S::kPieces + (S::kPieces == 2 ? loader % 2 : 0);
      weight_scale = problem.w2_scale + (unit.expert * kHiddenBlocks + output) * kInnerBlocks;
    } else {
      const int channel = unit.place * S::kPieces * kPieceChannels / kBlock;
      weight_scale =
          problem.w13_scale +
          (unit.expert * 2 * kInnerBlocks + channel + loader % 2 * kInnerBlocks) * kHiddenBlocks;
    }
    if (second) {
      if (threadIdx.x % 32 == 0) {
        while (load_acquire(scratch.done + unit.tile) < S::kSlices) {
        }
      }
      __syncwarp();
    }
    const uint4* rows = reinterpret_cast<const uint4*>(second ? scratch.inner : problem.tokens_fp8);
    rows += unit.begin * (kBlock / 16);
    const int64_t scale_step = second ? S::kScales : problem.tokens;
    const float* scales = (second ? scratch.inner_scale : problem.tokens_scale) +
                          unit.begin * scale_step;
    weight_scale += unit.begin;
    for (int block = unit.begin; block < unit.end; ++block) {
      barrier_wait(shared_address(&shared.empty[turn.at]), turn.phase ^ 1);
      const uint32_t target = shared_address(shared.stages[turn.at].rows);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        // Only the last rows of a lane may lie beyond the tile.
        const bool inside = (i + 1) * kAtOnce <= S::kTile || row + i * kAtOnce < S::kTile;
        if (i * kAtOnce < columns && inside) {
          copy_async(target + (i % 2 == 0 ? even : odd) + i * kAtOnce * kBlock, rows + source[i]);
        }
      }
      const uint32_t target_scales = shared_address(shared.scales[turn.at]) + loader * 4;
#pragma unroll
      for (int i = 0; i < kScalesEach; ++i) {
        if (loader + i * kLoaders < columns) {
          copy_async_word(target_scales + i * kLoaders * 4, scales + scale[i]);
          if (S::kScales == 2 && second) {
            copy_async_word(target_scales + (S::kTile + i * kLoaders) * 4, scales + scale[i] + 1);
          }
        }
      }
      if (loader >= kLoaders - 2) {
        copy_async_word(shared_address(&shared.weight_scales[turn.at][loader % 2]), weight_scale);
      }
      barrier_arrive_after_copies(shared_address(&shared.full[turn.at]));
      rows += kBlock / 16;
      scales += scale_step;
      ++weight_scale;
      turn.next();
    }
  }
}

constexpr float kSmallest = 1e-30f;  // that outputs are scaled by

__device__ __forceinline__ float swish(float gate) { return gate / (1.0f + __expf(-gate)); }

/// The blocks of the depth of a unit, summed with their scales. In the first projection
/// sum[4 j + i] is of the up projection for i < 2 and of the gate otherwise.
template <int kColumns, bool kSecond, class S>
__device__ __forceinline__ void accumulate(S& shared, Turn<S::kStages>& turn, int blocks,
                                           float (&sum)[kColumns / 2]) {
  constexpr int kRounds = kSecond ? S::kScales : 1;
  constexpr int kSteps = 4 / kRounds;
  constexpr int kEights = kColumns / 8;
  constexpr int kAhead = kEights < 4 ? kEights : 4;
  const int group = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  float c[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) c[i] = sum[i] = 0.0f;
  for (int block = 0; block < blocks; ++block) {
    const uint64_t a =
        rows_at(shared_address(shared.stages[turn.at].weights) + group * (kPieceBytes / 2));
    const uint64_t b = rows_at(shared_address(shared.stages[turn.at].rows));
    const uint32_t scales = shared_address(shared.scales[turn.at]) + lane % 4 * 8;
    const uint32_t weight_scales = shared_address(shared.weight_scales[turn.at]);
    barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);
    order_before_async();
    const float up = load_shared_float(weight_scales);
    const float gate = kSecond ? up : load_shared_float(weight_scales + 4);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      results_ready(c);
      products_begin();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int moved = (round * kSteps + step) * 2;  // 32 bytes
        multiply(c, a + moved, b + moved, step > 0);
      }
      products_commit();
      float2 x[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        x[j] = load_shared_pair(scales + (round * S::kTile + 8 * j) * 4);
      }
      products_wait<0>();
      results_ready(c);
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        const float2 s = x[j % kAhead];
        if (j + kAhead < kEights) {
          x[j % kAhead] = load_shared_pair(scales + (round * S::kTile + 8 * (j + kAhead)) * 4);
        }
        sum[4 * j] += c[4 * j] * (s.x * up);
        sum[4 * j + 1] += c[4 * j + 1] * (s.y * up);
        sum[4 * j + 2] += c[4 * j + 2] * (s.x * gate);
        sum[4 * j + 3] += c[4 * j + 3] * (s.y * gate);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.empty[turn.at]));
    turn.next();
  }
}

/// Leaves a part of a slice; true in the block that comes last, which then has the sum of all.
template <int kColumns, class S>
__device__ bool gather_parts(const Scratch& scratch, S& shared, const Unit& unit,
                             float (&sum)[kColumns / 2]) {
  constexpr int kEach = kPieceRows * S::kTile;
  const int slice = unit.tile * S::kSlices + unit.place;
  float* const all = scratch.partial + static_cast<int64_t>(slice) * unit.parts * kEach;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    __stcg(all + unit.part * kEach + i * kWorkers + threadIdx.x, sum[i]);
  }
  warps_meet(1, kWorkers);
  if (threadIdx.x == 0) {
    shared.arrivals = add_acquire_release(scratch.part_count + slice, 1);
  }
  warps_meet(1, kWorkers);
  if (shared.arrivals != unit.parts - 1) return false;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0.0f;
  for (int part = 0; part < unit.parts; ++part) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      sum[i] += __ldcg(all + part * kEach + i * kWorkers + threadIdx.x);
    }
  }
  return true;
}

/// SwiGLU and its quantisation, with a scale for the 64 channels of each row.
template <int kColumns, class S>
__device__ void store_inner(const Scratch& scratch, S& shared, const Unit& unit, int parity,
                            float (&sum)[kColumns / 2]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& x = sum[4 * j + i];
      x *= swish(sum[4 * j + 2 + i]);
      float most = fabsf(x);
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 4));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 8));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 16));
      if (lane < 4) shared.largest[parity][warp][8 * j + lane * 2 + i] = most;
    }
  }
  warps_meet(1, kWorkers);
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const int column = 8 * j + lane % 4 * 2;
    float2 most = {kSmallest, kSmallest};
#pragma unroll
    for (int w = 0; w < kWorkerWarps; ++w) {
      const float2 x = *reinterpret_cast<const float2*>(&shared.largest[parity][w][column]);
      most.x = fmaxf(most.x, x.x);
      most.y = fmaxf(most.y, x.y);
    }
    const int64_t row = unit.row + column;
    const uint32_t q =
        pack_fp8(sum[4 * j] * (kLargest / most.x), sum[4 * j + 1] * (kLargest / most.y));
    uint8_t* const target =
        scratch.inner + row * kInner + unit.place * kPieceChannels + warp * 8 + lane / 4;
    if (column < unit.rows) target[0] = static_cast<uint8_t>(q);
    if (column + 1 < unit.rows) target[kInner] = static_cast<uint8_t>(q >> 8);
    if (warp == 0 && lane < 4) {
      float* const scale = scratch.inner_scale + row * S::kSlices + unit.place;
      if (column < unit.rows) scale[0] = most.x * (1.0f / kLargest);
      if (column + 1 < unit.rows) scale[S::kSlices] = most.y * (1.0f / kLargest);
    }
  }
  warps_meet(1, kWorkers);
  if (threadIdx.x == 0) add_release(scratch.done + unit.tile, 1);
}

/// The second projection of a row before its weight.
template <int kColumns>
__device__ void store_result(const Scratch& scratch, const Unit& unit,
                             const float (&sum)[kColumns / 2]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  __nv_bfloat16* const first = scratch.result + unit.part * scratch.result_stride +
                               static_cast<int64_t>(unit.row) * kHidden + unit.place * kPieceRows +
                               warp * 16 + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    // Now a lane has two neighbouring outputs of row 8 j + lane / 4.
    const uint32_t low = transpose(pack_bf16(sum[4 * j], sum[4 * j + 1]));
    const uint32_t high = transpose(pack_bf16(sum[4 * j + 2], sum[4 * j + 3]));
    const int r = 8 * j + lane / 4;
    if (r < unit.rows) {
      *reinterpret_cast<uint32_t*>(first + r * kHidden) = low;
      *reinterpret_cast<uint32_t*>(first + r * kHidden + 8) = high;
    }
  }
}

template <int kColumns, class S>
__device__ void work_on(const Scratch& scratch, S& shared, const Unit& unit,
                        Turn<S::kStages>& turn, int& parity) {
  float sum[kColumns / 2];
  const int blocks = unit.end - unit.begin;
  if (unit.phase == 0) {
    accumulate<kColumns, false>(shared, turn, blocks, sum);
    if constexpr (S::kMaySplit) {
      if (unit.parts > 1 && !gather_parts<kColumns>(scratch, shared, unit, sum)) return;
    }
    store_inner<kColumns>(scratch, shared, unit, parity, sum);
    parity ^= 1;
  } else {
    accumulate<kColumns, true>(shared, turn, blocks, sum);
    store_result<kColumns>(scratch, unit, sum);
  }
}

template <int kColumns>
using Width = std::integral_constant<int, kColumns>;

template <class S>
__device__ void work(const StreamParams& params, S& shared) {
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  int parity = 0;
  while (true) {
    Unit unit = next_unit(shared, queue);
    // The same in all lanes, and known to the compiler to be.
    unit.phase = __shfl_sync(kAllLanes, unit.phase, 0);
    if (unit.phase == 2) break;
    const int columns = __shfl_sync(kAllLanes, columns_for<S::kTile>(unit.rows), 0);
    unit.parts = __shfl_sync(kAllLanes, unit.parts, 0);
    const auto on = [&](auto width) {
      work_on<decltype(width)::value>(params.scratch, shared, unit, turn, parity);
    };
    if (columns == 8) {
      on(Width<8>{});
    } else if (columns == 16) {
      on(Width<16>{});
    } else if (columns == 32) {
      if constexpr (S::kTile >= 32) on(Width<32>{});
    } else if (columns == 64) {
      if constexpr (S::kTile >= 64) on(Width<64>{});
    }
  }
}

// Many rows: now these are the first factor, 64 a warpgroup, and weights the second, one piece
// after the other. A thread then has two rows and needs no more scales than two of them.

/// Sums of a unit: sum[piece][4 j + i] is row lane / 4 + i / 2 * 8 of the warp's 16, and weights
/// 8 j + lane % 4 * 2 + i % 2 of the piece; in the first projection j is even for up, odd for gate.
template <class S>
using WideSums = float[S::kPieces][kPieceRows / 2];

template <bool kSecond, class S>
__device__ __forceinline__ void accumulate_many(S& shared, Turn<S::kStages>& turn,
                                                const Unit& unit, WideSums<S>& sum) {
  const int group = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  const bool idle = group * 64 >= unit.rows;
  float c[kPieceRows / 2];
#pragma unroll
  for (int i = 0; i < kPieceRows / 2; ++i) {
    c[i] = 0.0f;
#pragma unroll
    for (int piece = 0; piece < S::kPieces; ++piece) sum[piece][i] = 0.0f;
  }
  for (int block = unit.begin; block < unit.end; ++block) {
    const uint64_t a = rows_at(shared_address(shared.stages[turn.at].rows) + group * 64 * kBlock);
    const uint64_t b = rows_at(shared_address(shared.stages[turn.at].weights));
    barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);
    if (!idle) {
      order_before_async();
      const float low = shared.scales[turn.at][row];
      const float high = shared.scales[turn.at][row + 8];
      const float first = shared.weight_scales[turn.at][0];
      const float second = shared.weight_scales[turn.at][1];
#pragma unroll
      for (int piece = 0; piece < S::kPieces; ++piece) {
        results_ready(c);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          multiply(c, a + step * 2, b + piece * (kPieceBytes / 16) + step * 2, step > 0);
        }
        products_commit();
        // Of up and gate in the first projection, of the piece in the second.
        const float even = kSecond ? (piece == 0 ? first : second) : first;
        const float odd = kSecond ? even : second;
        const float scale[4] = {low * even, low * odd, high * even, high * odd};
        products_wait<0>();
        results_ready(c);
#pragma unroll
        for (int i = 0; i < kPieceRows / 2; ++i) {
          sum[piece][i] += c[i] * scale[i % 4 / 2 * 2 + i / 4 % 2];
        }
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.empty[turn.at]));
    turn.next();
  }
}

template <class S>
__device__ void store_inner_many(const Scratch& scratch, const Unit& unit, WideSums<S>& sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = kSmallest;
#pragma unroll
    for (int piece = 0; piece < S::kPieces; ++piece) {
#pragma unroll
      for (int j = 0; j < kPieceRows / 8; j += 2) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& x = sum[piece][4 * j + i];
          x *= swish(sum[piece][4 * j + 4 + i]);
          most = fmaxf(most, fabsf(x));
        }
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    const int r = threadIdx.x / 32 * 16 + lane / 4 + half * 8;
    if (r < unit.rows) {
      const float scale = kLargest / most;
      const int64_t row = unit.row + r;
      uint8_t* const target = scratch.inner + row * kInner +
                              unit.place * (S::kPieces * kPieceChannels) + lane % 4 * 2;
#pragma unroll
      for (int piece = 0; piece < S::kPieces; ++piece) {
#pragma unroll
        for (int j = 0; j < kPieceRows / 8; j += 2) {
          const float* const x = sum[piece] + 4 * j + 2 * half;
          *reinterpret_cast<uint16_t*>(target + piece * kPieceChannels + j * 4) =
              static_cast<uint16_t>(pack_fp8(x[0] * scale, x[1] * scale));
        }
      }
      if (lane % 4 == 0) {
        scratch.inner_scale[row * S::kSlices + unit.place] = most * (1.0f / kLargest);
      }
    }
  }
  warps_meet(1, kWorkers);
  if (threadIdx.x == 0) add_release(scratch.done + unit.tile, 1);
}

template <class S>
__device__ void store_result_many(const Scratch& scratch, const Unit& unit,
                                  const WideSums<S>& sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = threadIdx.x / 32 * 16 + lane / 4 + half * 8;
    if (r < unit.rows) {
      __nv_bfloat16* const target = scratch.result +
                                    static_cast<int64_t>(unit.row + r) * kHidden +
                                    unit.place * (S::kPieces * kPieceRows) + lane % 4 * 2;
#pragma unroll
      for (int piece = 0; piece < S::kPieces; ++piece) {
#pragma unroll
        for (int j = 0; j < kPieceRows / 8; ++j) {
          const float* const x = sum[piece] + 4 * j + 2 * half;
          *reinterpret_cast<uint32_t*>(target + piece * kPieceRows + j * 8) =
              pack_bf16(x[0], x[1]);
        }
      }
    }
  }
}

template <class S>
__device__ void work_on_many(const StreamParams& params, S& shared) {
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  while (true) {
    Unit unit = next_unit(shared, queue);
    // The same in all lanes, and known to the compiler to be.
    unit.phase = __shfl_sync(kAllLanes, unit.phase, 0);
    unit.rows = __shfl_sync(kAllLanes, unit.rows, 0);
    if (unit.phase == 2) break;
    WideSums<S> sum;
    if (unit.phase == 0) {
      accumulate_many<false>(shared, turn, unit, sum);
      store_inner_many<S>(params.scratch, unit, sum);
    } else {
      accumulate_many<true>(shared, turn, unit, sum);
      store_result_many<S>(params.scratch, unit, sum);
    }
  }
}
#endif  // MOE_WARPGROUPS

template <class S>
__global__ void __launch_bounds__(kStreamThreads, 1)
    stream(const __grid_constant__ StreamParams params) {
#if MOE_WARPGROUPS
  extern __shared__ __align__(1024) unsigned char memory[];
  S& shared = *reinterpret_cast<S*>(memory + (-shared_address(memory) & 1023));
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1 + kLoaders);
      barrier_init(shared_address(&shared.empty[i]), kWorkerWarps);
    }
    for (int i = 0; i < kQueue; ++i) {
      barrier_init(shared_address(&shared.unit_full[i]), 1);
      barrier_init(shared_address(&shared.unit_empty[i]), kWorkerWarps + kLoaderWarps);
    }
    barriers_visible();
    prefetch_map(params.first);
    prefetch_map(params.second);
  }
  __syncthreads();
  wait_for_previous_kernel();
  if (threadIdx.x >= kWorkers) {
    drop_registers<S::kFetchRegisters>();
    if (threadIdx.x < kWorkers + 32) {
      fetch_weights(params, shared);
    } else {
      fetch_rows(params, shared);
    }
  } else {
    take_registers<S::kWorkRegisters>();
    if constexpr (S::kPieces == 1) {
      work(params, shared);
    } else {
      work_on_many(params, shared);
    }
  }
#endif
}

}  // namespace moe
