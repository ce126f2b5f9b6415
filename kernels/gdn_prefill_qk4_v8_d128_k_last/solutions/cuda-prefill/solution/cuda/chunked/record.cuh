// The scratch memory between the two kernels.
#pragma once

#include "problem.cuh"

namespace gdn::chunked {

constexpr int kChunk = 64;  // tokens of a chunk
constexpr int kStateSize = kWidth * kWidth;
constexpr int kRowBytes = 2 * kWidth + 16;  // of q, k in shared memory: free of bank conflicts
constexpr int kTileBytes = kChunk * kRowBytes;

/// One call and its scratch memory: slots x 8 records.
struct Params : Problem {
  char* workspace;  // slots x 8 records
  unsigned* flags;  // slots x 8, all 0 between calls; for the joint kernel only
};

/// What the first kernel leaves for the second, for one chunk and value head.
///
/// A 64 x 64 lower triangular matrix is its ten 16 x 16 blocks (row, column) with column <= row;
/// a block is what each of 32 lanes holds of it as an operand of mma.m16n8k16, 16 bytes a lane.
struct Record {
  static constexpr int kBlocks = 10;
  uint4 solve[kBlocks][32];      // T diag(beta) below its diagonal, B operand
  uint4 attend[2][kBlocks][32];  // scale * tril(decay * q k^T), A operand, and what it is short of
  float decay[kChunk];           // from before the chunk to after token i
  float left[kChunk];            // from after token i to the end of the chunk
  float strength[kChunk];        // beta, the diagonal of T diag(beta)
};

/// The same for the products of a warpgroup: whole matrices, rows of 128 bytes, swizzled,
/// zeros above the diagonal.
struct TileRecord {
  static constexpr int kMatrixBytes = kChunk * kChunk * 2;
  char solve[kMatrixBytes];
  char attend[2][kMatrixBytes];
  float decay[kChunk];
  float left[kChunk];
  float strength[kChunk];
};

/// Place of 16 bytes in such rows.
__host__ __device__ constexpr int swizzled(int row, int piece) {
  return row * 128 + (piece ^ row % 8) * 16;
}

__host__ __device__ constexpr int block_at(int row, int column) {
  return row * (row + 1) / 2 + column;
}

/// Sequence n owns slots from here; no two overlap, and no sum over sequences is needed:
/// ceil(length / 64) <= floor(end / 64) - floor(begin / 64) + 1.
__host__ __device__ constexpr int64_t slot_of(int64_t begin, int n) {
  return begin / kChunk + n;
}

__host__ __device__ constexpr int64_t slots_of(int64_t tokens, int64_t sequences) {
  return tokens / kChunk + sequences;
}

}  // namespace gdn::chunked
