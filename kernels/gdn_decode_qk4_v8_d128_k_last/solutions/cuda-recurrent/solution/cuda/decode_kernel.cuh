// The step with the state in registers; the idea is explained at the head of gdn_decode.cu.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "row_math.cuh"
#include "state_io.cuh"
#include "tunables.h"

namespace gdn {

/// A CTA of WarpsT warps steps WarpsT * RowsPerWarpT consecutive rows of one (sequence, head);
/// a multiprocessor holds at least CtasT of them.
template <int LanesT, int WarpsT, int RowsPerWarpT, int CtasT>
struct Shape {
  static constexpr int kLanes = LanesT;
  static constexpr int kWarps = WarpsT;
  static constexpr int kRowsPerPass = Layout<LanesT>::kRowsPerPass;
  static constexpr int kRowsPerWarp = RowsPerWarpT;
  static constexpr int kPasses = kRowsPerWarp / kRowsPerPass;
  static constexpr int kRows = WarpsT * kRowsPerWarp;
  static constexpr int kCtas = CtasT;
  static_assert(kHeadSize % kRows == 0, "CTAs divide the rows of a head");
  static_assert(kPasses * kRowsPerPass == kRowsPerWarp, "a warp has whole passes");
};

/// The number of CTAs in the bounds is also a permission: with it ptxas takes the registers to
/// issue every load before the first use. Without it the loads of q wait until k has been used, a
/// second trip to memory (nvcc 13.0, sm_90a).
template <typename ShapeT, bool HasStateT>
__global__ void __launch_bounds__(ShapeT::kWarps * 32, ShapeT::kCtas)
    decode_step(const __grid_constant__ Params p) {
  constexpr int kLanes = ShapeT::kLanes;
  constexpr int kChunks = Layout<kLanes>::kChunks;
  constexpr int kRowsPerPass = ShapeT::kRowsPerPass;
  constexpr int kPasses = ShapeT::kPasses;

  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const unsigned piece = lane % kLanes;  // which 16-byte piece of each run of kLanes pieces
  // Rows are counted over all sequences and heads: row = (sequence * HV + head) * V + v.
  const unsigned row =
      (blockIdx.x * ShapeT::kWarps + warp) * ShapeT::kRowsPerWarp + lane / kLanes;
  const unsigned item = blockIdx.x / (kHeadSize / ShapeT::kRows);  // sequence * HV + head
  const size_t offset = static_cast<size_t>(row) * kHeadSize + piece * 4;
  // Of the passes of a row group, lane r loads (and later writes) the value of pass r.
  const unsigned own_row = row + (piece < kPasses ? piece : 0) * kRowsPerPass;

  float4 s[kPasses][kChunks];
  const uint64_t policy = load_policy();
#pragma unroll
  for (int r = 0; r < kPasses; ++r) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int step = r * kRowsPerPass * kHeadSize + c * kLanes * 4;
      s[r][c] = HasStateT ? load_state(p.state + offset + step, policy)
                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  const RawHead<kLanes> raw = load_head<kLanes>(p, item, piece);
  const float own_v = __bfloat162float(p.v[own_row]);

  const Head<kLanes> head = make_head<kLanes>(raw);
  const float out = step_rows<kLanes, kPasses>(
      head, p.scale, piece, s,
      [&](int r) { return kPasses == 1 ? own_v : __shfl_sync(kAllLanes, own_v, r, kLanes); },
      [&](int r, int c, float4 updated) {
        const int step = r * kRowsPerPass * kHeadSize + c * kLanes * 4;
        store_state(p.new_state + offset + step, updated);
      });
  if (piece < kPasses) p.output[own_row] = __float2bfloat16_rn(out);
}

}  // namespace gdn
