// Shapes of a block of the second kernel, and its shared memory.
#pragma once

#include "record.cuh"
#include "ptx.cuh"

namespace gdn::chunked {

/// kColumns of V a block, kTiles * 16 of them a warp, or kParts warps that share K. Where the shape
/// is solo, the warps that have the state compute the output as well; otherwise they have a partner
/// for that.
template <int kColumnsT, int kTilesT, int kStagesT, bool kSoloT, int kBlocksT, int kPartsT = 1>
struct Shape {
  static constexpr int kColumns = kColumnsT;
  static constexpr int kTiles = kTilesT;
  static constexpr int kStages = kStagesT;
  static constexpr bool kSolo = kSoloT;
  static constexpr int kBlocks = kBlocksT;  // that fit on a multiprocessor
  static constexpr int kParts = kPartsT;
  static constexpr int kPairs = kColumns / (16 * kTiles);
  static constexpr int kChains = kPairs * kParts;                      // warps with state
  static constexpr int kWorkers = kSolo ? kChains : kChains + kPairs;  // that use what is loaded
  // Warps that load queue for shared memory as those with state do. Warp i is on partition i % 4:
  // the loaders are the third and fourth of a group, and warps between them and the workers idle.
  static constexpr int kLoaders = 2;
  static constexpr int kFirstLoader = (kWorkers + 1) / 4 * 4 + 2;
  static constexpr int kThreads = (kFirstLoader + kLoaders) * 32;
  /// Whether a thread may have more than 168 registers.
  static constexpr bool kRoomy = kThreads <= 256 && kTiles == 1;
  static constexpr int kSplits = kWidth / kColumns;

  static constexpr int kVRowBytes = 2 * kColumns + 16;
  static constexpr int kOutRowBytes = 32 * kTiles + 16;
  static constexpr int kRowsBytes = kChunk * kOutRowBytes;
  static constexpr int kStateBytes = kSolo ? 0 : kTiles * 16 * 32 * 16;  // handed over by one warp
  static constexpr int kUpdateBytes = kSolo ? 0 : kTiles * 4 * 32 * 16;

  static constexpr int kQ = kTileBytes;  // offsets in a stage; k is at 0
  static constexpr int kV = 2 * kTileBytes;
  static constexpr int kRecord = kV + kChunk * kVRowBytes;
  static constexpr int kStates = kRecord + static_cast<int>(sizeof(Record));
  static constexpr int kUpdates = kStates + kPairs * kStateBytes;
  static constexpr int kNote = kUpdates + kPairs * kUpdateBytes;
  static constexpr int kSharp = kNote + 16;  // whether the state is
  static constexpr int kStageBytes = kSharp + 16;

  static constexpr int kRows = kStages * kStageBytes;
  static constexpr int kPartBytes = kTiles * 8 * 32 * 16;  // what a warp sends to the other part
  static constexpr int kExchange = kRows + kPairs * kRowsBytes;
  static constexpr int kBarriers = kExchange + (kParts > 1 ? 2 * kChains * kPartBytes : 0);
  static constexpr int kSharedBytes = kBarriers + kStages * (2 + kPairs) * 8;
  static_assert(kStageBytes % 16 == 0 && kSharedBytes <= 232448 / kBlocks);
  static_assert((kParts == 1 || (kParts == 2 && !kSolo)) && kPairs < 15);
};

/// Shared memory of a block as addresses.
template <class S>
struct Memory {
  uint32_t base;

  __device__ uint32_t stage(int i) const { return base + i * S::kStageBytes; }
  __device__ uint32_t rows(int warp) const { return base + S::kRows + warp * S::kRowsBytes; }
  /// By turns one of two, so that a part may be written while the one before is read.
  __device__ uint32_t exchange(int turn, int chain) const {
    return base + S::kExchange + (turn * S::kChains + chain) * S::kPartBytes;
  }
  __device__ uint32_t full(int i) const { return base + S::kBarriers + i * 8; }
  __device__ uint32_t empty(int i) const { return full(S::kStages + i); }
  /// State and update of a stage are there for the partner.
  __device__ uint32_t ready(int i, int pair) const {
    return full((2 + pair) * S::kStages + i);
  }
};

/// A stage, and how often the stages have been around.
template <class S>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ Turn next() const {
    return stage + 1 == S::kStages ? Turn{0, parity ^ 1} : Turn{stage + 1, parity};
  }
};

/// All lanes are done with what the barrier guards.
__device__ __forceinline__ void warp_arrive(uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) barrier_arrive(barrier);
}

}  // namespace gdn::chunked
