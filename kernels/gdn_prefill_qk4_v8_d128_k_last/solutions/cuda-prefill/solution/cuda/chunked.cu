// Gated DeltaNet over ragged sequences in chunks of 64 tokens: two kernels, mma.sync.
//
// Idea. With D_ij the decay from token j to token i of a chunk, d_i that from before the chunk and
// S the state before it,
//     T = (I + tril(beta_i D_ij k_i . k_j, -1))^-1 diag(beta),   u = T (v - d k S^T),
//     o = scale (d q S^T + tril(D_ij q_i . k_j) u),              S' = d_64 S + u^T (D_64 k).
// T and the factor of u in o need no state: `prepare` computes them for all chunks at once, 16 KiB
// for a chunk and head. `chain` walks along a sequence. A warp of it has 16 or 32 columns of V and
// all of K of the state as accumulators, transposed, so that S rounded to bfloat16 is the first
// operand of the next product as it lies in registers; u is turned from accumulator to operand in
// the same way. So no warp of the chain waits for another one: V is split over warps and blocks.
// A partner warp gets S and u through shared memory and computes o.
//
// The host knows neither lengths nor offsets: blocks find their sequence on the device.
#include <algorithm>

#include "chunked/chain.cuh"
#include "chunked/prepare.cuh"
#include "launch.cuh"
#include "tunables.h"

namespace gdn::chunked {
namespace {

template <class S>
cudaError_t launch_chain(const Params& params, int processors, cudaStream_t stream) {
  const int64_t tasks = int64_t{params.sequences} * kHeads * S::kSplits;
  const int64_t blocks = std::min<int64_t>(tasks, processors * S::kBlocks);
  const Grid grid{blocks, S::kThreads, S::kSharedBytes, true};
  return launch_grid<chain<S>>(grid, params, stream);
}

}  // namespace

size_t workspace_bytes(int tokens, int sequences) {
  return static_cast<size_t>(slots_of(tokens, sequences)) * kHeads * sizeof(Record);
}

cudaError_t launch(const Problem& problem, void* workspace, int processors, cudaStream_t stream) {
  const Params params{problem, static_cast<char*>(workspace)};
  const int64_t slots = slots_of(problem.tokens, problem.sequences);
  const Grid chunks{slots * kHeads, kPrepareThreads, 0};
  const cudaError_t prepared = launch_grid<prepare>(chunks, params, stream);
  if (prepared != cudaSuccess) return prepared;
  // The fewer columns of V a block has, the shorter a step, and the more often k and q are loaded.
  if (problem.sequences <= KOPT_NARROW_UP_TO) {
    return launch_chain<Shape<16, 1, 3, false, 1, KOPT_PARTS>>(params, processors, stream);
  }
  return launch_chain<Shape<32, 1, 2, false, 1>>(params, processors, stream);
}

}  // namespace gdn::chunked
