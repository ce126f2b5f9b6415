// Where things are in the shared memory of a block.
#pragma once

#include <cstdint>

#include "problem.cuh"

namespace dsa {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kBlocks = 16;                  // of a cluster, which serves a query token
constexpr int kRows = kPlaces / kBlocks;     // cached tokens of a block
constexpr int kStageRows = kWarps * 8;       // a warp multiplies queries with 8 of them
constexpr int kStages = kRows / kStageRows;
constexpr int kLatentBytes = kLatent * 2;
constexpr int kRopeBytes = kRope * 2;
constexpr int kPitch = kLatentBytes + kRopeBytes + 16;  // 8 rows of a matrix in distinct banks
constexpr int kWeightPitch = kStageRows * 2 + 16;
constexpr int kTilesPerWarp = kLatent / 8 / kWarps;   // of the output, 8 columns each
constexpr int kTilesPerBlock = kLatent / 8 / kBlocks;
constexpr int kTileBytes = kHeads * 8 * 4;

/// Offsets in bytes. What other blocks write (the inboxes) is written by nobody else.
struct Memory {
  static constexpr uint32_t kKeys = 0;
  static constexpr uint32_t kQueries = kKeys + kRows * kPitch;
  static constexpr uint32_t kWeights = kQueries + kHeads * kPitch;       // bf16, of one stage
  static constexpr uint32_t kTops = kWeights + kHeads * kWeightPitch;    // float [head][warp]
  static constexpr uint32_t kSums = kTops + kHeads * kWarps * 4;         // float [head][warp]
  static constexpr uint32_t kOwnTops = kSums + kHeads * kWarps * 4;      // float [head]
  static constexpr uint32_t kShares = kOwnTops + kHeads * 4;             // float [head][block]
  static constexpr uint32_t kPartInbox = kShares + kHeads * kBlocks * 4; // [block][tile][lane]
  static constexpr uint32_t kSumInbox = kPartInbox + kBlocks * kTilesPerBlock * kTileBytes;
  static constexpr uint32_t kBytes = kSumInbox + kBlocks * kHeads * 8;   // {top, sum}
};

static_assert(Memory::kBytes <= 227 * 1024, "more than a block can have");
static_assert(kRows % kStageRows == 0 && kTilesPerWarp % kTilesPerBlock == 0);

}  // namespace dsa
