// The step for batches whose state fits the chip only with shared memory and registers together.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "bulk.cuh"
#include "row_math.cuh"
#include "state_io.cuh"
#include "tunables.h"

namespace gdn {

/// A CTA of one warp steps 32 consecutive rows: the first BulkRowsT by way of shared memory.
template <int LanesT, int BulkRowsT>
struct HybridShape {
  static constexpr int kRows = 32;  // one lane each for v
  static constexpr int kBulkRows = BulkRowsT;
  static constexpr int kChunkRows = 8;  // that one barrier stands for
  static constexpr int kBulkChunks = BulkRowsT / kChunkRows;
  static constexpr int kRowsPerPass = Layout<LanesT>::kRowsPerPass;
  static constexpr int kDirectPasses = (kRows - BulkRowsT) / kRowsPerPass;
  static constexpr int kChunkPasses = kChunkRows / kRowsPerPass;
  static constexpr int kCtas = 16;  // 24 rows each are 192 KiB of shared memory
  static_assert(BulkRowsT % kChunkRows == 0 && BulkRowsT > 0 && BulkRowsT <= 24);
};

/// All loads of all rows are under way before the first row is stepped; rows that came into
/// shared memory are stepped in place and leave by bulk copies.
template <int LanesT, int BulkRowsT>
__global__ void __launch_bounds__(32, HybridShape<LanesT, BulkRowsT>::kCtas)
    decode_step_hybrid(const __grid_constant__ Params p) {
  using S = HybridShape<LanesT, BulkRowsT>;
  constexpr int kChunks = Layout<LanesT>::kChunks;
  constexpr int kRowsPerPass = S::kRowsPerPass;
  constexpr int kChunkFloats = S::kChunkRows * kHeadSize;
  constexpr uint32_t kChunkBytes = kChunkFloats * sizeof(float);
  __shared__ alignas(128) float rows[S::kBulkRows * kHeadSize];
  __shared__ alignas(8) uint64_t arrived[S::kBulkChunks];

  const unsigned lane = threadIdx.x;
  const unsigned piece = lane % LanesT;
  const unsigned group = lane / LanesT;
  const unsigned row0 = blockIdx.x * S::kRows;
  const unsigned item = row0 / kHeadSize;
  const size_t offset0 = static_cast<size_t>(row0) * kHeadSize;
  const unsigned lane_offset = group * kHeadSize + piece * 4;

  const uint64_t policy = load_policy();
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < S::kBulkChunks; ++i) barrier_init(arrived + i);
    barrier_init_fence();
#pragma unroll
    for (int i = 0; i < S::kBulkChunks; ++i) {
      bulk_load(rows + i * kChunkFloats, p.state + offset0 + i * kChunkFloats, kChunkBytes,
                arrived + i, policy);
    }
  }
  const size_t direct = offset0 + S::kBulkRows * kHeadSize + lane_offset;
  float4 s[S::kDirectPasses][kChunks];
#pragma unroll
  for (int r = 0; r < S::kDirectPasses; ++r) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int step = r * kRowsPerPass * kHeadSize + c * LanesT * 4;
      s[r][c] = load_state(p.state + direct + step, policy);
    }
  }
  const RawHead<LanesT> raw = load_head<LanesT>(p, item, piece);
  const float own_v = __bfloat162float(p.v[row0 + lane]);
  const Head<LanesT> head = make_head<LanesT>(raw);
  __syncwarp();  // the barriers are initialised

  const float out = step_rows<LanesT, S::kDirectPasses>(
      head, p.scale, piece, s,
      [&](int r) {
        return __shfl_sync(kAllLanes, own_v, S::kBulkRows + r * kRowsPerPass + group);
      },
      [&](int r, int c, float4 updated) {
        const int step = r * kRowsPerPass * kHeadSize + c * LanesT * 4;
        store_state(p.new_state + direct + step, updated);
      });
  if (piece < S::kDirectPasses) {
    p.output[row0 + S::kBulkRows + piece * kRowsPerPass + group] = __float2bfloat16_rn(out);
  }

#pragma unroll
  for (int i = 0; i < S::kBulkChunks; ++i) {
    float* chunk = rows + i * kChunkFloats;
    barrier_wait(arrived + i);
    float4 t[S::kChunkPasses][kChunks];
#pragma unroll
    for (int r = 0; r < S::kChunkPasses; ++r) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int step = r * kRowsPerPass * kHeadSize + c * LanesT * 4;
        t[r][c] = *reinterpret_cast<const float4*>(chunk + lane_offset + step);
      }
    }
    const float chunk_out = step_rows<LanesT, S::kChunkPasses>(
        head, p.scale, piece, t,
        [&](int r) {
          return __shfl_sync(kAllLanes, own_v, i * S::kChunkRows + r * kRowsPerPass + group);
        },
        [&](int r, int c, float4 updated) {
          const int step = r * kRowsPerPass * kHeadSize + c * LanesT * 4;
          *reinterpret_cast<float4*>(chunk + lane_offset + step) = updated;
        });
    if (piece < S::kChunkPasses) {
      p.output[row0 + i * S::kChunkRows + piece * kRowsPerPass + group] =
          __float2bfloat16_rn(chunk_out);
    }
    publish_to_bulk();
    if (lane == 0) bulk_store(p.new_state + offset0 + i * kChunkFloats, chunk, kChunkBytes);
  }
  if (lane == 0) bulk_store_drain();
}

}  // namespace gdn
