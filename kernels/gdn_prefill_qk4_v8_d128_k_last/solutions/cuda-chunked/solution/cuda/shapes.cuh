// Shapes of a block of the second kernel, and its shared memory.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace gdn {

/// kColumns of V a block, kTiles * 16 of them a warp. Where the shape is solo, the warps that have
/// the state compute the output as well; otherwise each has a partner for that.
template <int kColumnsT, int kTilesT, int kStagesT, bool kSoloT, int kBlocksT>
struct Shape {
  static constexpr int kColumns = kColumnsT;
  static constexpr int kTiles = kTilesT;
  static constexpr int kStages = kStagesT;
  static constexpr bool kSolo = kSoloT;
  static constexpr int kBlocks = kBlocksT;  // that fit on a multiprocessor
  static constexpr int kPairs = kColumns / (16 * kTiles);
  static constexpr int kWorkers = kSolo ? kPairs : 2 * kPairs;  // warps that use what is loaded
  static constexpr int kLoaders = 2;                            // warps that load
  static constexpr int kThreads = (kWorkers + kLoaders) * 32;
  static constexpr int kSplits = kWidth / kColumns;

  static constexpr int kVRowBytes = 2 * kColumns + 16;
  static constexpr int kOutRowBytes = 32 * kTiles + 16;
  static constexpr int kRowsBytes = kChunk * kOutRowBytes;
  static constexpr int kStateBytes = kSolo ? 0 : kTiles * 8 * 32 * 16;  // handed over by one warp
  static constexpr int kUpdateBytes = kSolo ? 0 : kTiles * 4 * 32 * 16;

  static constexpr int kQ = kTileBytes;  // offsets in a stage; k is at 0
  static constexpr int kV = 2 * kTileBytes;
  static constexpr int kRecord = kV + kChunk * kVRowBytes;
  static constexpr int kStates = kRecord + static_cast<int>(sizeof(Record));
  static constexpr int kUpdates = kStates + kPairs * kStateBytes;
  static constexpr int kNote = kUpdates + kPairs * kUpdateBytes;
  static constexpr int kStageBytes = kNote + 16;

  static constexpr int kRows = kStages * kStageBytes;
  static constexpr int kBarriers = kRows + kPairs * kRowsBytes;
  static constexpr int kSharedBytes = kBarriers + kStages * (2 + kPairs) * 8;
  static_assert(kStageBytes % 16 == 0 && kSharedBytes <= 232448 / kBlocks);
};

/// Shared memory of a block as addresses.
template <class S>
struct Memory {
  uint32_t base;

  __device__ uint32_t stage(int i) const { return base + i * S::kStageBytes; }
  __device__ uint32_t rows(int warp) const { return base + S::kRows + warp * S::kRowsBytes; }
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

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

__device__ __forceinline__ float load_shared_float(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

__device__ __forceinline__ void store_shared_word(uint32_t address, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

/// All lanes are done with what the barrier guards.
__device__ __forceinline__ void warp_arrive(uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) barrier_arrive(barrier);
}

}  // namespace gdn
