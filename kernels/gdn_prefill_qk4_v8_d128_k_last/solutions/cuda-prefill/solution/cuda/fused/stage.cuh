// What warps of a CTA share: who they are, chunks in shared memory, and barriers.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace gdn::fused {

constexpr int kChunk = 16;  // tokens that are done at once
constexpr int kRows = 16;   // state rows (of V) of a tile: the height of an mma

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

/// Who does what in a CTA with so many tiles of 16 rows of a state, so many warps for the columns
/// of a tile, so many read warps for each tile, which take chunks in turn, so many key warps, and
/// so many chunks in shared memory.
///
/// Value warps come first, then read warps, key warps and the loader. A scheduler has every fourth
/// warp; where one value warp is alone on its scheduler, only the loader joins it, for it has the
/// least to do.
template <int TilesT, int PartsT, int ReadWarpsT, int KeyWarpsT, int StagesT>
struct Shape {
  static_assert((StagesT & (StagesT - 1)) == 0, "the number of stages must be a power of 2");

  static constexpr int kTiles = TilesT;
  static constexpr int kParts = PartsT;
  static constexpr int kReadWarps = ReadWarpsT;
  static constexpr int kKeyWarps = KeyWarpsT;
  static constexpr int kStages = StagesT;           // chunk i is in stage i % kStages
  static constexpr int kColumns = kWidth / PartsT;  // of a value warp
  static constexpr int kPieces = kColumns / 16;     // of them, as long as the depth of an mma
  static constexpr int kValueWarps = TilesT * PartsT;
  static constexpr int kFirstRead = kValueWarps;
  static constexpr int kFirstKey = kFirstRead + TilesT * ReadWarpsT;
  static constexpr int kWarps = kFirstKey + KeyWarpsT + 1;
  static constexpr int kLoader = kValueWarps == 1 && kWarps > 5 ? 4 : kWarps - 1;
  static constexpr int kSlices = kWidth / (TilesT * kRows);
  static constexpr int kHandovers = 2 * ReadWarpsT;  // chunk i uses number i % kHandovers
  static constexpr int kValuePitch = TilesT * kRows * 2 + 16;  // bytes from row to row of v
  /// Whether operands are fetched before they are due: with one tile there are registers enough,
  /// and nothing else hides the time that takes.
  static constexpr bool kAhead = TilesT == 1;
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
  uint64_t used;  // by all value warps, and by a read warp for each tile
};

/// From the value warps of a tile to its read warps, as lanes hold mma operands: the state before a
/// chunk, what its rounding has left if it is sharp, and what the chunk writes.
struct Handover {
  uint4 state[kWidth / 16][32];
  uint4 rest[kWidth / 16][32];
  uint4 update[32];
  bool sharp;
};

struct HandoverBarriers {
  uint64_t state;
  uint64_t update;
  uint64_t used;
};

/// Sums over a warp's columns, for the other warps of the tile.
using Partial = float4[2][32];

template <class ShapeT>
struct Shared {
  Stage<ShapeT> stage[ShapeT::kStages];
  Handover handover[ShapeT::kTiles][ShapeT::kHandovers];
  Partial partial[2][ShapeT::kValueWarps];  // two sets, for a warp may be a chunk ahead
  float system[ShapeT::kKeyWarps][kChunk][kChunk + 4];  // L, for the warp's own eyes
  StageBarriers barriers[ShapeT::kStages];
  HandoverBarriers handed[ShapeT::kTiles][ShapeT::kHandovers];

  /// For up to so many tokens, by one thread. Loops are not unrolled: a cold call fetches its code
  /// from memory, too.
  __device__ __forceinline__ void init_barriers(int tokens) {
    const int stages = min(ShapeT::kStages, (tokens + kChunk - 1) / kChunk);
#pragma unroll 1
    for (int i = 0; i < max(stages, 1); ++i) {
      const uint32_t at = shared_address(&barriers[i]);
      barrier_init(at + offsetof(StageBarriers, loaded), 32);
      barrier_init(at + offsetof(StageBarriers, solved), 1);
      barrier_init(at + offsetof(StageBarriers, mixed), 1);
      barrier_init(at + offsetof(StageBarriers, used), ShapeT::kValueWarps + ShapeT::kTiles);
    }
#pragma unroll 1
    for (int i = 0; i < ShapeT::kTiles * ShapeT::kHandovers; ++i) {
      const uint32_t at = shared_address(&handed[0][0]) + i * sizeof(HandoverBarriers);
      barrier_init(at + offsetof(HandoverBarriers, state), ShapeT::kParts);
      barrier_init(at + offsetof(HandoverBarriers, update), 1);
      barrier_init(at + offsetof(HandoverBarriers, used), 1);
    }
  }
};

/// Those who wait together for barriers to be ready: a slow role keeps no other one waiting.
enum class Role { kValue, kRead, kKey, kLoad };

/// The first read warp gets barriers ready. Named barriers from 8 on are for that.
template <class ShapeT, Role kRole>
__device__ __forceinline__ void await_barriers() {
  constexpr int kWarps = kRole == Role::kValue  ? ShapeT::kValueWarps
                         : kRole == Role::kRead ? ShapeT::kTiles * ShapeT::kReadWarps - 1
                         : kRole == Role::kKey  ? ShapeT::kKeyWarps
                                                : 1;
  warps_meet(8 + static_cast<int>(kRole), (kWarps + 1) * 32);
}

template <class ShapeT>
__device__ __forceinline__ void announce_barriers() {
  __syncwarp();
  warps_arrive(8 + static_cast<int>(Role::kLoad), 64);
  warps_arrive(8 + static_cast<int>(Role::kKey), (ShapeT::kKeyWarps + 1) * 32);
  warps_arrive(8 + static_cast<int>(Role::kValue), (ShapeT::kValueWarps + 1) * 32);
  if constexpr (ShapeT::kTiles * ShapeT::kReadWarps > 1) {
    warps_arrive(8 + static_cast<int>(Role::kRead), ShapeT::kTiles * ShapeT::kReadWarps * 32);
  }
}

/// Makes what this warp has written visible to those who wait for one arrival of it.
__device__ __forceinline__ void announce(const uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&barrier));
}

/// Waits until everything about use number `use` of the barrier's object is announced.
__device__ __forceinline__ void await(const uint64_t& barrier, int use) {
  barrier_wait(shared_address(&barrier), use & 1);
}

/// Whether that is so. Even where it long is, to learn it takes a hundred clocks, which pass beside
/// other work where it is asked in time.
__device__ __forceinline__ bool announced(const uint64_t& barrier, int use) {
  return barrier_test(shared_address(&barrier), use & 1);
}

/// Waits, where that was asked before.
__device__ __forceinline__ void await(bool was_announced, const uint64_t& barrier, int use) {
  if (!was_announced) await(barrier, use);
}

}  // namespace gdn::fused
