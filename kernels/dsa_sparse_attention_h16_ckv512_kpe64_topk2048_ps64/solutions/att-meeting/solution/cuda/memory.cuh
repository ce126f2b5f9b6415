// How a query token is split among blocks, and where things are in the shared memory of a block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem.cuh"

namespace dsa {

constexpr int kWarps = 8;  // that compute
constexpr int kThreads = kWarps * 32;
constexpr int kFetchWarps = 4;
constexpr int kAllThreads = kThreads + kFetchWarps * 32;
constexpr int kTeams = kWarps / 2;      // two warps multiply queries with the same 8 keys
constexpr int kStageRows = kTeams * 8;
constexpr int kLatentBytes = kLatent * 2;
constexpr int kRopeBytes = kRope * 2;
constexpr int kPitch = kLatentBytes + kRopeBytes + 16;  // 8 rows of a matrix in distinct banks
constexpr int kWeightPitch = kStageRows * 2 + 16;
constexpr int kTilesPerWarp = kTiles / kWarps;

/// A block has kRowsT of the selected tokens of a query token.
template <int kRowsT>
struct Shape {
  static constexpr int kRows = kRowsT;
  static constexpr int kSplits = kPlaces / kRows;
  static constexpr int kStages = kRows / kStageRows;
  static constexpr int kOwnTiles = kTiles / kSplits;  // that a block merges

  // Offsets in bytes.
  static constexpr uint32_t kKeys = 0;
  static constexpr uint32_t kQueries = kKeys + kRows * kPitch;
  static constexpr uint32_t kWeights = kQueries + kHeads * kPitch;     // bf16, of one stage
  static constexpr uint32_t kHalves = kWeights + kHeads * kWeightPitch;  // float4 [team][lane]
  static constexpr uint32_t kTops = kHalves + kTeams * 512;            // float [head][team]
  static constexpr uint32_t kSums = kTops + kHeads * kTeams * 4;       // float [head][team]
  static constexpr uint32_t kTop = kSums + kHeads * kTeams * 4;        // float [head]
  static constexpr uint32_t kValid = kTop + kHeads * 4;                // a bit for each row [stage]
  static constexpr uint32_t kBarriers = kValid + 16;                   // [stage], then the queries'
  static constexpr uint32_t kMerged = kBarriers + 48;                  // float4 [warp][lane]
  static constexpr uint32_t kScales = kMerged + kWarps * 512;  // [warp][8]: {top, sum} x 2
  static constexpr uint32_t kBytes = kScales + kWarps * 8 * 16;

  static_assert(kRows % kStageRows == 0 && kPlaces % kRows == 0 && kTiles % kSplits == 0);
  static_assert(kStages <= 4 && kStageRows == kFetchWarps * 8);
  static_assert(kSplits >= kHeads && kSplits % kWarps == 0 && kMerged % 16 == 0);
  static_assert(kBytes <= 227 * 1024, "more than a block can have");
};

}  // namespace dsa
