// Shapes, arguments and the shared memory of a CTA.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "ptx.cuh"
#include "tunables.h"

namespace gdn {

constexpr int kHeads = 8;    // value heads
constexpr int kQkHeads = 4;  // query and key heads
constexpr int kWidth = 128;  // of keys and of values
constexpr int kChunk = 16;   // tokens that are done at once
constexpr int kRows = 16;    // state rows (of V) of a value warp: the height of an mma tile

/// Device pointers and scalars of one call; all tensors are contiguous.
struct Params {
  const __nv_bfloat16* q;     // (T, Q, K)
  const __nv_bfloat16* k;     // (T, Q, K)
  const __nv_bfloat16* v;     // (T, H, V)
  const float* state;         // (N, H, V, K), null for zeros
  const float* A_log;         // (H)
  const __nv_bfloat16* a;     // (T, H)
  const float* dt_bias;       // (H)
  const __nv_bfloat16* b;     // (T, H)
  const int64_t* cu_seqlens;  // (N + 1)
  __nv_bfloat16* output;      // (T, H, V)
  float* new_state;           // (N, H, V, K)
  int tokens;
  int sequences;
  float scale;
};

/// What a CTA works on: some rows of the state of one head of one sequence.
struct Item {
  int sequence;
  int head;
  int first_row;  // of V
  int begin;      // token
  int length;
  int chunks;

  __device__ __forceinline__ void set_tokens(int64_t first, int64_t end) {
    begin = static_cast<int>(first);
    length = static_cast<int>(end - first);
    chunks = (length + kChunk - 1) / kChunk;
  }
};

/// Decays of a token: from the chunk's beginning, and to its end.
struct Decay {
  float since;
  float left;
};

/// Bytes from row to row of q and k: padded, so that the eight rows of a matrix lie in different
/// banks. A swizzle would need no padding, and an instruction for every address.
constexpr int kPitch = kWidth * 2 + 16;

/// One chunk in shared memory: its tokens, and what the key side makes of them.
template <int ValueWarpsT>
struct __align__(128) Stage {
  static constexpr int kValues = ValueWarpsT * kRows;
  static constexpr int kValuePitch = kValues * 2 + 16;
  static constexpr int kSolvedPitch = kChunk * 2 + 16;

  uint8_t k[kChunk * kPitch];
  uint8_t q[kChunk * kPitch];
  uint8_t v[kChunk * kValuePitch];
  uint8_t solved[kChunk * kSolvedPitch];  // rows of (I + L)^-1 diag(beta), bfloat16
  uint32_t mixed[32][4];                  // tril(D q k^T) scale, as lanes hold an mma operand
  Decay decay[kChunk];
  float beta[kChunk];
  float total;  // decay over the chunk
};

/// Progress on a stage.
struct Barriers {
  uint64_t loaded;  // tokens and decays are there
  uint64_t solved;
  uint64_t mixed;
  uint64_t used;  // by all value warps
};

constexpr int kDepth = KOPT_PREFETCH;  // stages of a key warp; one is being worked on
static_assert(kDepth >= 2, "PREFETCH must be 2 or more");

template <int ValueWarpsT, int KeyWarpsT>
struct Shared {
  static constexpr int kStages = KeyWarpsT * kDepth;  // chunk i uses stage i % kStages

  Stage<ValueWarpsT> stage[kStages];
  float system[KeyWarpsT][kChunk][kChunk + 4];  // L, for the warp's own eyes
  Barriers barriers[kStages];

  /// By one thread.
  __device__ __forceinline__ void init_barriers() {
    const uint32_t first = shared_address(barriers);
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      barrier_init(first + i * sizeof(Barriers) + offsetof(Barriers, loaded), 1);
      barrier_init(first + i * sizeof(Barriers) + offsetof(Barriers, solved), 1);
      barrier_init(first + i * sizeof(Barriers) + offsetof(Barriers, mixed), 1);
      barrier_init(first + i * sizeof(Barriers) + offsetof(Barriers, used), ValueWarpsT);
    }
  }
};

}  // namespace gdn
