// Both projections in one kernel: weights stream through shared memory, whichever projection they
// are of.
//
// Weights are the first factor of products (64 rows a warpgroup), rows of tokens the second: few
// rows then cost little. One warp fetches weights, three fetch rows (which lie anywhere) and
// scales, two warpgroups multiply. Weights of the second projection are fetched while the first is
// still under way; only its rows wait.
#pragma once

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
constexpr int kWeightBytes = kRows * kBlock;

struct StreamParams {
  TensorMap first;
  TensorMap second;
  Problem problem;
  Scratch scratch;
};

/// Shared memory of a block with tiles of kTile rows.
template <int kTile>
struct Stage {
  alignas(1024) unsigned char weights[kWeightBytes];
  unsigned char rows[kTile * kBlock];
};

template <int kTile_, int kStages_>
struct Stream {
  static constexpr int kTile = kTile_;
  static constexpr int kStages = kStages_;
  static constexpr bool kMaySplit = kTile <= 32;

  Stage<kTile> stages[kStages];
  alignas(16) float scales[kStages][2 * kTile];  // of rows; in the second projection per 64 channels
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
__device__ __forceinline__ int columns_for(int rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

#if MOE_WARPGROUPS

/// One warp: takes units, tells the others, fetches weights.
template <class S>
__device__ void fetch_weights(const StreamParams& params, S& shared) {
  const Schedule schedule = Schedule::read<S::kTile>(params.scratch, S::kMaySplit);
  const bool leader = threadIdx.x % 32 == 0;
  if (leader && blockIdx.x == 0) params.scratch.head[1] = schedule.second_parts;
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  int index = leader ? atomicAdd(params.scratch.head, 1) : 0;
  while (true) {
    const Unit unit = schedule.unit<S::kTile>(__shfl_sync(kAllLanes, index, 0));
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
        barrier_expect(full, kWeightBytes);
        const uint32_t target = shared_address(shared.stages[turn.at].weights);
        if (unit.phase == 0) {
          copy_box(target, params.first, block * kBlock, 0, 0, unit.place * (kSlice / 8),
                   unit.expert, full);
        } else {
          copy_box(target, params.second, block * kBlock,
                   unit.expert * kHidden + unit.place * kRows, full);
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

/// Three warps: fetch rows and scales.
template <class S>
__device__ void fetch_rows(const StreamParams& params, S& shared) {
  constexpr int kEach = (S::kTile + kLoaders / 8 - 1) / (kLoaders / 8);
  constexpr int kScalesEach = (S::kTile + kLoaders - 1) / kLoaders;
  const Problem& problem = params.problem;
  const Scratch& scratch = params.scratch;
  const int loader = threadIdx.x - kWorkers - 32;
  const int piece = loader % 8;
  Turn<S::kStages> turn;
  Turn<kQueue> queue;
  while (true) {
    const Unit unit = next_unit(shared, queue);
    if (unit.phase == 2) break;
    const int columns = columns_for(unit.rows);
    const bool second = unit.phase == 1;
    int64_t source[kEach];
    const uint8_t* const rows = second ? scratch.inner : problem.tokens_fp8;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int r = loader / 8 + i * (kLoaders / 8);
      source[i] = -1;
      if (r < unit.rows) {
        source[i] = second ? static_cast<int64_t>(unit.row + r) * kInner
                           : static_cast<int64_t>(__ldcg(scratch.row_token + unit.row + r)) * kHidden;
        source[i] += piece * 16;
      }
    }
    int scale_of[kScalesEach];
#pragma unroll
    for (int i = 0; i < kScalesEach; ++i) {
      const int r = loader + i * kLoaders;
      scale_of[i] = 0;
      if (r < unit.rows) {
        scale_of[i] = second ? unit.row + r : __ldcg(scratch.row_token + unit.row + r);
      }
    }
    const float* weight_scale;
    if (second) {
      weight_scale = problem.w2_scale + (unit.expert * kHiddenBlocks + unit.place) * kInnerBlocks;
    } else {
      weight_scale = problem.w13_scale + (unit.expert * 2 * kInnerBlocks + unit.place / 2 +
                                          loader % 2 * kInnerBlocks) *
                                             kHiddenBlocks;
    }
    if (second) {
      if (threadIdx.x % 32 == 0) {
        while (load_acquire(scratch.done + unit.tile) < kSlices) {
        }
      }
      __syncwarp();
    }
    for (int block = unit.begin; block < unit.end; ++block) {
      barrier_wait(shared_address(&shared.empty[turn.at]), turn.phase ^ 1);
      const uint32_t target = shared_address(shared.stages[turn.at].rows);
      const uint32_t scales = shared_address(shared.scales[turn.at]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int r = loader / 8 + i * (kLoaders / 8);
        if (r < columns) {
          const bool valid = source[i] >= 0;
          copy_async(target + r * kBlock + (piece ^ r % 8) * 16,
                     rows + (valid ? source[i] + block * kBlock : 0), valid);
        }
      }
#pragma unroll
      for (int i = 0; i < kScalesEach; ++i) {
        const int r = loader + i * kLoaders;
        if (r < columns) {
          const bool valid = r < unit.rows;
          if (second) {
            const float* const from =
                scratch.inner_scale + static_cast<int64_t>(scale_of[i]) * kSlices + 2 * block;
            copy_async_word(scales + r * 4, from, valid);
            copy_async_word(scales + (S::kTile + r) * 4, from + 1, valid);
          } else {
            copy_async_word(scales + r * 4,
                            problem.tokens_scale +
                                static_cast<int64_t>(block) * problem.tokens + scale_of[i],
                            valid);
          }
        }
      }
      if (loader >= kLoaders - 2) {
        copy_async_word(shared_address(&shared.weight_scales[turn.at][loader % 2]),
                        weight_scale + block, true);
      }
      barrier_arrive_after_copies(shared_address(&shared.full[turn.at]));
      turn.next();
    }
  }
}

/// The blocks of the depth of a unit, summed with their scales. In the first projection c[4 j + i]
/// is of the up projection for i < 2 and of the gate otherwise.
template <int kColumns, bool kSecond, class S>
__device__ __forceinline__ void accumulate(S& shared, Turn<S::kStages>& turn, int blocks,
                                           float (&sum)[kColumns / 2]) {
  const int group = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  float c[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) c[i] = sum[i] = 0.0f;
  for (int block = 0; block < blocks; ++block) {
    const uint32_t weights =
        shared_address(shared.stages[turn.at].weights) + group * (kWeightBytes / 2);
    const uint64_t a = rows_at(weights);
    const uint64_t b = rows_at(shared_address(shared.stages[turn.at].rows));
    const uint32_t scales = shared_address(shared.scales[turn.at]) + lane % 4 * 8;
    const uint32_t weight_scale = shared_address(shared.weight_scales[turn.at]);
    barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);
    order_before_async();
    constexpr int kRounds = kSecond ? 2 : 1;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      constexpr int kSteps = 4 / kRounds;
      results_ready(c);
      products_begin();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int moved = (round * kSteps + step) * 2;  // 32 bytes
        multiply(c, a + moved, b + moved, step > 0);
      }
      products_commit();
      const float up = load_shared_float(weight_scale);
      const float gate = kSecond ? up : load_shared_float(weight_scale + 4);
      products_wait<0>();
      results_ready(c);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const float2 x = load_shared_pair(scales + (round * S::kTile + 8 * j) * 4);
        sum[4 * j] += c[4 * j] * (x.x * up);
        sum[4 * j + 1] += c[4 * j + 1] * (x.y * up);
        sum[4 * j + 2] += c[4 * j + 2] * (x.x * gate);
        sum[4 * j + 3] += c[4 * j + 3] * (x.y * gate);
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
  constexpr int kEach = kRows * S::kTile;
  const int slice = unit.tile * kSlices + unit.place;
  float* const all = scratch.partial + static_cast<int64_t>(slice) * unit.parts * kEach;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    __stcg(all + unit.part * kEach + i * kWorkers + threadIdx.x, sum[i]);
  }
  warps_meet(1, kWorkers);
  if (threadIdx.x == 0) {
    __threadfence();
    shared.arrivals = add_acquire_release(scratch.part_count + slice, 1);
    __threadfence();
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
                            const float (&sum)[kColumns / 2]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float value[kColumns / 4];
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float gate = sum[4 * j + 2 + i];
      const float x = sum[4 * j + i] * (gate / (1.0f + __expf(-gate)));
      value[2 * j + i] = x;
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
    float2 most = {0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < kWorkerWarps; ++w) {
      const float2 x = *reinterpret_cast<const float2*>(&shared.largest[parity][w][column]);
      most.x = fmaxf(most.x, x.x);
      most.y = fmaxf(most.y, x.y);
    }
    most.x = fmaxf(most.x, 1e-30f);
    most.y = fmaxf(most.y, 1e-30f);
    const uint32_t q =
        pack_fp8(value[2 * j] * (kLargest / most.x), value[2 * j + 1] * (kLargest / most.y));
    const int64_t row = unit.row + column;
    const int channel = unit.place * kSlice + warp * 8 + lane / 4;
    if (column < unit.rows) scratch.inner[row * kInner + channel] = static_cast<uint8_t>(q);
    if (column + 1 < unit.rows) {
      scratch.inner[(row + 1) * kInner + channel] = static_cast<uint8_t>(q >> 8);
    }
    if (warp == 0 && lane < 4) {
      float* const scale = scratch.inner_scale + row * kSlices + unit.place;
      if (column < unit.rows) scale[0] = most.x * (1.0f / kLargest);
      if (column + 1 < unit.rows) scale[kSlices] = most.y * (1.0f / kLargest);
    }
  }
  warps_meet(1, kWorkers);
  if (threadIdx.x == 0) {
    __threadfence();
    add_release(scratch.done + unit.tile, 1);
  }
}

/// The second projection of a row before its weight.
template <int kColumns>
__device__ void store_result(const Scratch& scratch, const Unit& unit,
                             const float (&sum)[kColumns / 2]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    // Now a lane has two neighbouring outputs of row 8 j + lane / 4.
    const uint32_t low = transpose(pack_bf16(sum[4 * j], sum[4 * j + 1]));
    const uint32_t high = transpose(pack_bf16(sum[4 * j + 2], sum[4 * j + 3]));
    const int r = 8 * j + lane / 4;
    if (r < unit.rows) {
      __nv_bfloat16* const target =
          scratch.result + unit.part * scratch.result_stride +
          static_cast<int64_t>(unit.row + r) * kHidden + unit.place * kRows + warp * 16 +
          lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(target) = low;
      *reinterpret_cast<uint32_t*>(target + 8) = high;
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
    const int columns = __shfl_sync(kAllLanes, columns_for(unit.rows), 0);
    unit.parts = __shfl_sync(kAllLanes, unit.parts, 0);
    if (columns == 8) {
      work_on<8>(params.scratch, shared, unit, turn, parity);
    } else if (columns == 16) {
      work_on<16>(params.scratch, shared, unit, turn, parity);
    } else if constexpr (S::kTile >= 32) {
      if (columns == 32) {
        work_on<32>(params.scratch, shared, unit, turn, parity);
      } else if constexpr (S::kTile >= 64) {
        if (columns == 64) {
          work_on<64>(params.scratch, shared, unit, turn, parity);
        } else if constexpr (S::kTile >= 128) {
          work_on<128>(params.scratch, shared, unit, turn, parity);
        }
      }
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
    drop_registers<72>();
    if (threadIdx.x < kWorkers + 32) {
      fetch_weights(params, shared);
    } else {
      fetch_rows(params, shared);
    }
  } else {
    take_registers<216>();
    work(params, shared);
  }
#endif
}

}  // namespace moe
