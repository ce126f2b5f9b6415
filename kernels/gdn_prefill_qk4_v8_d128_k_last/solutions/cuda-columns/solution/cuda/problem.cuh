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
constexpr int kRows = 16;    // state rows (of V) of a tile: the height of an mma
constexpr int kValueWarps = 4;                        // of a CTA
constexpr int kColumns = kWidth / kValueWarps;        // state columns (of K) of a value warp
constexpr int kPieces = kColumns / 16;                // of them, as long as the depth of an mma
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

/// Who does what in a CTA with so many tiles of rows of the state, and so many key warps.
///
/// Value warps come first, one to each of the four schedulers, then read warps, key warps and the
/// loader. With one tile, read warps take chunks in turn; with four, each has a tile.
template <int TilesT, int KeyWarpsT>
struct Shape {
  static_assert(TilesT == 1 || TilesT == kValueWarps, "a CTA has one tile, or one per value warp");
  static constexpr int kTiles = TilesT;
  static constexpr int kKeyWarps = KeyWarpsT;
  static constexpr int kReadWarps = TilesT == 1 ? 2 : TilesT;
  static constexpr int kFirstRead = kValueWarps;
  static constexpr int kFirstKey = kFirstRead + kReadWarps;
  static constexpr int kLoader = kFirstKey + KeyWarpsT;
  static constexpr int kWarps = kLoader + 1;
  static constexpr int kSlices = kWidth / (TilesT * kRows);
  static constexpr int kHandovers = TilesT == 1 ? 4 : 2;  // chunk i uses number i % kHandovers
  static constexpr int kValuePitch = TilesT * kRows * 2 + 16;  // bytes from row to row of v
};

/// One chunk: its tokens, and what the key side makes of them.
template <class ShapeT>
struct __align__(128) Stage {
  uint8_t k[kChunk * kPitch];
  uint8_t q[kChunk * kPitch];
  uint8_t v[kChunk * ShapeT::kValuePitch];
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
  uint64_t used;  // by all value warps, and by read warps
};

/// From value warps to read warps, as lanes hold mma operands: the state before a chunk, and what
/// the chunk writes.
template <class ShapeT>
struct Handover {
  uint4 state[ShapeT::kTiles][kWidth / 16][32];
  uint4 update[ShapeT::kTiles][32];
};

struct HandoverBarriers {
  uint64_t state;
  uint64_t update;
  uint64_t used;
};

/// What value warps tell each other; two sets, for a warp may be a chunk ahead.
template <class ShapeT>
struct Exchange {
  float4 partial[ShapeT::kTiles][kValueWarps][2][32];  // S K^T over a warp's columns
  uint4 written[ShapeT::kTiles][32];                   // U diag(left)
};

template <class ShapeT>
struct Shared {
  Stage<ShapeT> stage[kStages];
  Handover<ShapeT> handover[ShapeT::kHandovers];
  Exchange<ShapeT> exchange[2];
  float system[ShapeT::kKeyWarps][kChunk][kChunk + 4];  // L, for the warp's own eyes
  StageBarriers barriers[kStages];
  HandoverBarriers handed[ShapeT::kHandovers];

  /// By one thread. Loops are not unrolled: a cold call fetches its code from memory, too.
  __device__ __forceinline__ void init_barriers() {
    constexpr int kReaders = ShapeT::kTiles;  // of one chunk
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      const uint32_t at = shared_address(&barriers[i]);
      barrier_init(at + offsetof(StageBarriers, loaded), 32);
      barrier_init(at + offsetof(StageBarriers, solved), 1);
      barrier_init(at + offsetof(StageBarriers, mixed), 1);
      barrier_init(at + offsetof(StageBarriers, used), kValueWarps + kReaders);
    }
#pragma unroll 1
    for (int i = 0; i < ShapeT::kHandovers; ++i) {
      const uint32_t at = shared_address(&handed[i]);
      barrier_init(at + offsetof(HandoverBarriers, state), kValueWarps);
      barrier_init(at + offsetof(HandoverBarriers, update), kReaders);
      barrier_init(at + offsetof(HandoverBarriers, used), kReaders);
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
