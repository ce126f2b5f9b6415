// Which part serves a call, by the extents that its tensors have anyway.
#pragma once

#include "problem.cuh"

namespace gdn {

enum class Part {
  kColumns,  // fused, see Split
  kOneTile,
  kTwoTiles,
  kFourTiles,
  kChunked,
  kWide,  // the same for Hopper
};

/// Serves calls of up to so many sequences and up to so many tokens.
struct Regime {
  int64_t sequences;
  int64_t tokens;
  Part part;
};

constexpr int64_t kAny = INT64_MAX;

/// The first that fits serves. Lengths are data, which the host does not read: bounds on tokens are
/// where the faster of two parts changes for lengths split at random (NVIDIA H200, 2026-11-30, from
/// measurements that LOG-short.md lists).
constexpr Regime kRegimes[] = {
    {1, 150, Part::kColumns},     {1, 900, Part::kOneTile},   {1, kAny, Part::kChunked},
    {2, 180, Part::kColumns},     {2, 1300, Part::kOneTile},  {2, kAny, Part::kChunked},
    {4, 1300, Part::kTwoTiles},   {4, kAny, Part::kChunked},
    {8, 1500, Part::kTwoTiles},   {8, kAny, Part::kChunked},
    {12, 1500, Part::kFourTiles}, {12, kAny, Part::kChunked},
    {kAny, kAny, Part::kFourTiles},
};

constexpr Part part_for(int64_t tokens, int64_t sequences) {
  for (const Regime& regime : kRegimes) {
    if (sequences <= regime.sequences && tokens <= regime.tokens) return regime.part;
  }
  return Part::kFourTiles;
}

/// On Hopper, from so many tokens on, many sequences are not for one kernel either.
constexpr int64_t kManyTokens = 3000;

/// The same for a device that has, or has not, products of warpgroups.
constexpr Part part_for(int64_t tokens, int64_t sequences, bool warpgroups) {
  const Part part = part_for(tokens, sequences);
  if (!warpgroups) return part;
  const bool many = part == Part::kFourTiles && sequences > 12 && tokens >= kManyTokens;
  return part == Part::kChunked || many ? Part::kWide : part;
}

/// Of scratch memory.
inline size_t workspace_bytes(Part part, const Problem& problem) {
  switch (part) {
    case Part::kChunked: return chunked::workspace_bytes(problem.tokens, problem.sequences);
    case Part::kWide: return wide::workspace_bytes(problem.tokens, problem.sequences);
    default: return 0;
  }
}

/// Leading bytes of it that have to be 0 before the first call, and are after each.
constexpr size_t zero_bytes(Part part) { return part == Part::kWide ? wide::kZeroBytes : 0; }

inline cudaError_t launch(Part part, const Problem& problem, void* workspace, int processors,
                          cudaStream_t stream) {
  using fused::Split;
  switch (part) {
    case Part::kColumns: return fused::launch(problem, Split::kColumns, stream);
    case Part::kOneTile: return fused::launch(problem, Split::kOneTile, stream);
    case Part::kTwoTiles: return fused::launch(problem, Split::kTwoTiles, stream);
    case Part::kFourTiles: return fused::launch(problem, Split::kFourTiles, stream);
    case Part::kChunked: return chunked::launch(problem, workspace, processors, stream);
    case Part::kWide: return wide::launch(problem, workspace, processors, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gdn
