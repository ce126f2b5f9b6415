// Extents of the operator and what a call brings.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace dsa {

constexpr int kHeads = 16;
constexpr int kLatent = 512;
constexpr int kRope = 64;
constexpr int kPlaces = 2048;  // for selected tokens, per query token
constexpr int kPageSize = 64;
constexpr int kTileColumns = 8;
constexpr int kTiles = kLatent / kTileColumns;  // of the output of a query token

struct Problem {
  const __nv_bfloat16* q_nope;  // (tokens, kHeads, kLatent)
  const __nv_bfloat16* q_pe;    // (tokens, kHeads, kRope)
  const __nv_bfloat16* ckv;     // (cached tokens, kLatent)
  const __nv_bfloat16* kpe;     // (cached tokens, kRope)
  const int32_t* selected;      // (tokens, kPlaces), negative selects nothing
  __nv_bfloat16* output;        // (tokens, kHeads, kLatent)
  float* lse;                   // (tokens, kHeads)
  float factor;                 // on the logits, with log2(e)
  int64_t tokens;
  uint2* parts;  // (tokens, kTiles, splits, 32): 2 x 2 elements a lane, every bit set if not there
  uint2* logs;   // (tokens, splits that read, splits that wrote, 8): of heads i and i + 8, the same
};

constexpr uint32_t kAbsent = 0xffffffffu;  // a word of parts or logs that is not there

}  // namespace dsa
