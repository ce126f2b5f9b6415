// Which part serves a call, by the extents that its tensors have anyway.
#pragma once

#include "problem.cuh"

namespace gdn {

enum class Part {
  kColumns,    // fused, see Split
  kRows,
  kManyRows,
  kChunked16,  // chunked, with so many columns of V a block
  kChunked32,
};

/// Serves calls of up to so many sequences and up to so many tokens.
struct Regime {
  int64_t sequences;
  int64_t tokens;
  Part part;
};

constexpr int64_t kAny = INT64_MAX;

/// The first that fits serves. Lengths are data, which the host does not read: bounds on tokens are
/// where the faster of two parts changes for lengths split at random, from the times that LOG.md
/// lists (NVIDIA H200, 2026-11-30).
constexpr Regime kRegimes[] = {
    {1, 160, Part::kColumns},    {1, 1440, Part::kRows},  {1, kAny, Part::kChunked16},
    {2, 220, Part::kColumns},    {2, 1440, Part::kRows},  {2, kAny, Part::kChunked16},
    {4, 1500, Part::kRows},      {4, kAny, Part::kChunked16},
    {12, 1500, Part::kRows},     {12, kAny, Part::kChunked32},
    {kAny, kAny, Part::kManyRows},
};

constexpr Part part_for(int64_t tokens, int64_t sequences) {
  for (const Regime& regime : kRegimes) {
    if (sequences <= regime.sequences && tokens <= regime.tokens) return regime.part;
  }
  return Part::kManyRows;
}

/// Of scratch memory.
inline size_t workspace_bytes(Part part, const Problem& problem) {
  const bool chunked = part == Part::kChunked16 || part == Part::kChunked32;
  return chunked ? chunked::workspace_bytes(problem.tokens, problem.sequences) : 0;
}

inline cudaError_t launch(Part part, const Problem& problem, void* workspace, int processors,
                          cudaStream_t stream) {
  using fused::Split;
  switch (part) {
    case Part::kColumns: return fused::launch(problem, Split::kColumns, stream);
    case Part::kRows: return fused::launch(problem, Split::kRows, stream);
    case Part::kManyRows: return fused::launch(problem, Split::kManyRows, stream);
    case Part::kChunked16: return chunked::launch(problem, 16, workspace, processors, stream);
    case Part::kChunked32: return chunked::launch(problem, 32, workspace, processors, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gdn
