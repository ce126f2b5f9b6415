// Calls cuda-moe on a CPU.
#include <vector>

#include "fibers.h"
#include "layer.cuh"

/// Pointers in the order of the definition's inputs (without scalars) and outputs. `tile` 0 is the
/// one that serves such a call. Returns the tile, or -1 where a launch fails.
extern "C" int run(void** p, int tokens, int offset, float factor, int tile, int processors) {
  using Bytes = const uint8_t*;
  using F32 = const float*;
  const moe::Problem problem{static_cast<F32>(p[0]),
                             static_cast<const __nv_bfloat16*>(p[1]),
                             static_cast<Bytes>(p[2]),
                             static_cast<F32>(p[3]),
                             static_cast<Bytes>(p[4]),
                             static_cast<F32>(p[5]),
                             static_cast<Bytes>(p[6]),
                             static_cast<F32>(p[7]),
                             static_cast<__nv_bfloat16*>(p[8]),
                             tokens,
                             offset,
                             factor};
  using namespace moe;
  if (tile == 0) tile = tile_for(tokens);
  if (tile < 0) tile = 0;
  Scratch scratch;
  const size_t bytes = lay_out(scratch, nullptr, tokens, tile);
  std::vector<char> memory(bytes + 256, '\xff');
  char* const base = memory.data() + (-reinterpret_cast<uintptr_t>(memory.data()) & 255);
  lay_out(scratch, base, tokens, tile);
  fibers::forget_reads();
  fibers::allow_reads(problem.logits, size_t{kExperts} * tokens * 4);
  fibers::allow_reads(problem.bias, size_t{kExperts} * 2);
  fibers::allow_reads(problem.tokens_fp8, size_t{kHidden} * tokens);
  fibers::allow_reads(problem.tokens_scale, size_t{kHiddenBlocks} * tokens * 4);
  fibers::allow_reads(problem.w13, size_t{kLocal} * 2 * kInner * kHidden);
  fibers::allow_reads(problem.w13_scale, size_t{kLocal} * 2 * kInnerBlocks * kHiddenBlocks * 4);
  fibers::allow_reads(problem.w2, size_t{kLocal} * kInner * kHidden);
  fibers::allow_reads(problem.w2_scale, size_t{kLocal} * kInnerBlocks * kHiddenBlocks * 4);
  fibers::allow_reads(base, bytes);
  return launch_layer(problem, scratch, tile, processors, nullptr) == cudaSuccess ? tile : -1;
}
