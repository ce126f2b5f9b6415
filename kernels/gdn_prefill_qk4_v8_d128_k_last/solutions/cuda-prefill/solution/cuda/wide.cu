// Gated DeltaNet in chunks of 64 tokens as in chunked.cu, for Hopper: products of warpgroups, and
// copies by tensor map.
//
// Target: sm_90a; elsewhere the kernels are empty, and nobody launches them.
//
// `prepare_tiles` leaves T and the factor of u in o as second factors of products, swizzled. In
// `wide_chain` a warpgroup has 64 columns of V and all of K of the state as accumulators,
// transposed: rounded to bfloat16 they are the first factor of the next product as they lie, and so
// are x = v - d k S^T and u. The same warpgroup computes o, behind what the next state waits for.
// For few sequences `joint` is both: blocks for the chain, and all others prepare what it needs
// next.
#include <algorithm>

#include "chunked/joint.cuh"
#include "chunked/tiles.cuh"
#include "chunked/wide.cuh"
#include "launch.cuh"
#include "maps.cuh"
#include "tunables.h"

namespace gdn::wide {
namespace {

using chunked::Maps;
using chunked::WideParams;

cudaError_t map_tensors(Maps& maps, const Problem& problem) {
  const int64_t states = int64_t{problem.sequences} * kHeads * kWidth;
  struct {
    TensorMap& map;
    int bytes;
    const void* data;
    int64_t rows;
    int columns;
  } const matrices[] = {
      {maps.q, 2, problem.q, problem.tokens, kQkHeads * kWidth},
      {maps.k, 2, problem.k, problem.tokens, kQkHeads * kWidth},
      {maps.v, 2, problem.v, problem.tokens, kHeads * kWidth},
      {maps.state, 4, problem.state, states, kWidth},
      {maps.new_state, 4, problem.new_state, states, kWidth},
  };
  for (const auto& x : matrices) {
    if (x.data == nullptr) continue;  // no state
    const cudaError_t status = map_rows(x.map, x.bytes, x.data, x.rows, x.columns);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t launch_joint(const WideParams& params, int processors, cudaStream_t stream) {
  using W = chunked::Wide<3, true>;
  const int64_t tasks = int64_t{params.sequences} * kHeads * W::kSplits;
  const int64_t others = std::max<int64_t>(processors - tasks, 1);
  return launch_grid<chunked::joint<W>>({tasks + others, W::kThreads, W::kSharedBytes}, params,
                                        stream);
}

cudaError_t launch_both(const WideParams& params, int processors, cudaStream_t stream) {
  using W = chunked::Wide<3>;
  const int64_t chunks = chunked::slots_of(params.tokens, params.sequences) * kHeads;
  constexpr size_t kBenchBytes = chunked::Workbench::kBytes + 1024;  // and to align it
  const cudaError_t prepared = launch_grid<chunked::prepare_tiles>(
      {chunks, chunked::kPrepareThreads, kBenchBytes}, params, stream);
  if (prepared != cudaSuccess) return prepared;
  const int64_t tasks = int64_t{params.sequences} * kHeads * W::kSplits;
  const int64_t blocks = std::min<int64_t>(tasks, processors);
  return launch_grid<chunked::wide_chain<W>>({blocks, W::kThreads, W::kSharedBytes, true}, params,
                                             stream);
}

}  // namespace

size_t workspace_bytes(int tokens, int sequences) {
  return kZeroBytes + static_cast<size_t>(chunked::slots_of(tokens, sequences)) * kHeads *
                          sizeof(chunked::TileRecord);
}

cudaError_t launch(const Problem& problem, void* workspace, int processors, cudaStream_t stream) {
  if (problem.tokens == 0) {  // there is nothing to map, and no records but flags to overwrite
    return chunked::launch(problem, static_cast<char*>(workspace) + kZeroBytes, processors, stream);
  }
  WideParams params{};
  static_cast<Problem&>(params) = problem;
  params.flags = static_cast<unsigned*>(workspace);
  params.workspace = static_cast<char*>(workspace) + kZeroBytes;
  const cudaError_t mapped = map_tensors(params.maps, problem);
  if (mapped != cudaSuccess) return mapped;
  const int64_t flags = chunked::slots_of(problem.tokens, problem.sequences) * kHeads;
  const bool few = problem.sequences <= std::min(KOPT_JOINT_UP_TO, chunked::kJointSequences);
  if (few && flags * sizeof(unsigned) <= kZeroBytes) {
    return launch_joint(params, processors, stream);
  }
  return launch_both(params, processors, stream);
}

}  // namespace gdn::wide
