// The whole recurrence in one kernel, for few tokens.
//
// Idea. The chain from chunk to chunk is the bound, so it is kept short: chunks of 16 tokens, the
// state in the registers of value warps. Products are arranged so that what one leaves in a lane is
// what the next wants there (value_side.cuh). What is not in the chain is done by others: a loader
// copies tokens to a ring in shared memory (load_side.cuh), key warps make what needs no state,
// ahead of time: gates, the inverse of a chunk's triangular system, q k^T (key_side.cuh), and read
// warps make the output (read_side.cuh). With few sequences a CTA has 16 rows of a state, and 64
// CTAs share a sequence; each repeats the key side.
//
// Numbers. Operands of products are rounded to bfloat16, sums and the state are float32; the
// inverse is found by substitution in float32. All exponents are differences of sums of
// logarithms, later minus earlier, so never positive.
#include "fused/kernel.cuh"
#include "launch.cuh"
#include "tunables.h"

namespace gdn::fused {
namespace {

template <class ShapeT>
cudaError_t launch_shape(const Problem& problem, cudaStream_t stream) {
  const int64_t blocks = int64_t{problem.sequences} * kHeads * ShapeT::kSlices;
  const Grid grid{blocks, ShapeT::kWarps * 32, sizeof(Shared<ShapeT>)};
  return launch_grid<prefill<ShapeT>>(grid, problem, stream);
}

}  // namespace

cudaError_t launch(const Problem& problem, Split split, cudaStream_t stream) {
  switch (split) {
    case Split::kColumns:
      return launch_shape<Shape<1, 4, 2, KOPT_COLUMNS_KEY_WARPS, 8>>(problem, stream);
    case Split::kOneTile:
      return launch_shape<Shape<1, 1, 2, KOPT_KEY_WARPS, KOPT_STAGES>>(problem, stream);
    case Split::kTwoTiles:
      return launch_shape<Shape<2, 1, 1, KOPT_KEY_WARPS, 8>>(problem, stream);
    case Split::kFourTiles:
      return launch_shape<Shape<4, 1, 1, KOPT_KEY_WARPS, 8>>(problem, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gdn::fused
