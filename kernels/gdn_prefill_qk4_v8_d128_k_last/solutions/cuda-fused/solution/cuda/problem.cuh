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
constexpr int kStages = KOPT_STAGES;  // chunk i is in stage i % kStages

static_assert((kStages & (kStages - 1)) == 0 && kStages >= 2, "STAGES must be a power of 2");

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
constexpr int kSolvedPitch = kChunk * 2 + 16;

/// One chunk: its tokens, and what the key side makes of them.
template <int ValueWarpsT>
struct __align__(128) Stage {
  static constexpr int kValuePitch = ValueWarpsT * kRows * 2 + 16;

  uint8_t k[kChunk * kPitch];
  uint8_t q[kChunk * kPitch];
  uint8_t v[kChunk * kValuePitch];
  uint8_t solved[kChunk * kSolvedPitch];  // rows of (I + L)^-1 diag(beta), bfloat16
  uint4 mixed[32];                        // tril(D q k^T) scale, as lanes hold an mma operand
  Decay decay[kChunk];
  float beta[kChunk];
  float total;  // decay over the chunk
};

/// Progress on a stage.
struct StageBarriers {
  uint64_t loaded;  // tokens are there
  uint64_t solved;  // and decays and the inverse
  uint64_t mixed;
  uint64_t used;  // by all value and read warps
};

/// From a value warp to its read warp, as lanes hold mma operands: the state before a chunk, and
/// what the chunk writes.
struct Handover {
  uint4 state[8][32];
  uint4 update[32];
};

struct HandoverBarriers {
  uint64_t state;
  uint64_t update;
  uint64_t used;
};

constexpr int kHandovers = 2;  // chunk i uses number i % 2

template <int ValueWarpsT, int KeyWarpsT>
struct Shared {
  Stage<ValueWarpsT> stage[kStages];
  Handover handover[ValueWarpsT][kHandovers];
  float system[KeyWarpsT][kChunk][kChunk + 4];  // L, for the warp's own eyes
  StageBarriers barriers[kStages];
  HandoverBarriers handed[ValueWarpsT][kHandovers];

  /// By one thread.
  __device__ __forceinline__ void init_barriers() {
    const uint32_t stages = shared_address(barriers);
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      const uint32_t at = stages + i * sizeof(StageBarriers);
      barrier_init(at + offsetof(StageBarriers, loaded), 32);
      barrier_init(at + offsetof(StageBarriers, solved), 1);
      barrier_init(at + offsetof(StageBarriers, mixed), 1);
      barrier_init(at + offsetof(StageBarriers, used), 2 * ValueWarpsT);
    }
    const uint32_t hands = shared_address(handed);
#pragma unroll
    for (int i = 0; i < ValueWarpsT * kHandovers; ++i) {
      const uint32_t at = hands + i * sizeof(HandoverBarriers);
      barrier_init(at + offsetof(HandoverBarriers, state), 1);
      barrier_init(at + offsetof(HandoverBarriers, update), 1);
      barrier_init(at + offsetof(HandoverBarriers, used), 1);
    }
  }
};

/// Makes what this warp has written visible to those who wait for one arrival of it.
__device__ __forceinline__ void announce(const uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&barrier));
}

/// Waits until everything about use number `use` of the barrier's object is announced.
__device__ __forceinline__ void await(const uint64_t& barrier, int use) {
  barrier_wait(shared_address(&barrier), use & 1);
}

}  // namespace gdn
