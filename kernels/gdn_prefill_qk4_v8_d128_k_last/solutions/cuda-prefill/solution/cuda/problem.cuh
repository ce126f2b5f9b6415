// One call, and who can serve it. The parts know nothing of each other, and the host that calls
// them nothing of their insides.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace gdn {

constexpr int kHeads = 8;    // value heads
constexpr int kQkHeads = 4;  // query and key heads
constexpr int kWidth = 128;  // of keys and of values

/// A state that has decayed so much over the last tokens of a chunk is next to nothing but the few
/// that they wrote. A query nearly orthogonal to their keys then cancels in the products of a row,
/// and what the state was rounded by shows. Such a state is read out with 16 bits.
constexpr float kSharpDecay = 1.0f / 64;
constexpr int kLastTokens = 4;

/// Device pointers and scalars of one call; all tensors are contiguous, T tokens, N sequences.
struct Problem {
  const __nv_bfloat16* q;     // (T, 4, K)
  const __nv_bfloat16* k;     // (T, 4, K)
  const __nv_bfloat16* v;     // (T, 8, V)
  const float* state;         // (N, 8, V, K), null for zeros
  const float* A_log;         // (8)
  const __nv_bfloat16* a;     // (T, 8)
  const float* dt_bias;       // (8)
  const __nv_bfloat16* b;     // (T, 8)
  const int64_t* cu_seqlens;  // (N + 1)
  __nv_bfloat16* output;      // (T, 8, V)
  float* new_state;           // (N, 8, V, K)
  float scale;
  int tokens;
  int sequences;  // at least one
};

namespace fused {  // fused.cu

/// How many tiles of 16 rows of a state a CTA has, a warp for each.
enum class Split {
  kColumns,  // one tile, four warps with a quarter of its columns each
  kOneTile,
  kTwoTiles,
  kFourTiles,
};

/// One kernel, chunks of 16 tokens.
cudaError_t launch(const Problem& problem, Split split, cudaStream_t stream);

}  // namespace fused

namespace chunked {  // chunked.cu

/// Of scratch memory, aligned to 16; nothing in it outlives a call.
size_t workspace_bytes(int tokens, int sequences);

/// Two kernels, chunks of 64 tokens; `processors` is the number of multiprocessors.
cudaError_t launch(const Problem& problem, void* workspace, int processors, cudaStream_t stream);

}  // namespace chunked

namespace wide {  // wide.cu

/// So many bytes of scratch memory have to be 0 before the first call that gets it, and are after
/// each.
constexpr size_t kZeroBytes = 1 << 16;

/// Of scratch memory, aligned to 16; but for the above nothing in it outlives a call.
size_t workspace_bytes(int tokens, int sequences);

/// The same for compute capability 9.x, in one or two kernels.
cudaError_t launch(const Problem& problem, void* workspace, int processors, cudaStream_t stream);

}  // namespace wide
}  // namespace gdn
