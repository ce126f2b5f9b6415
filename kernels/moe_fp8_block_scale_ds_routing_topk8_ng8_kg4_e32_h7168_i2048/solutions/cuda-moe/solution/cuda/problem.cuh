// Shapes, arguments, and what the kernels leave to each other in scratch memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace moe {

constexpr int kExperts = 256;  // of the layer
constexpr int kLocal = 32;     // of this device
constexpr int kTop = 8;
constexpr int kHidden = 7168;
constexpr int kInner = 2048;
constexpr int kBlock = 128;  // channels of a scale
constexpr int kHiddenBlocks = kHidden / kBlock;
constexpr int kInnerBlocks = kInner / kBlock;

/// Rows of weights that come in one copy: 64 channels of the up projection and of the gate, or 128
/// outputs of the second. A unit of work has one or two of these pieces.
constexpr int kPieceRows = 128;
constexpr int kPieceChannels = 64;

/// With so few tiles the depth of a projection may be cut into as many parts.
constexpr int kSplitTiles = 3;
constexpr int kFirstParts = 4;
constexpr int kSecondParts = 2;

constexpr float kLargest = 448.0f;  // of e4m3

struct Problem {
  const float* logits;         // (T, 256)
  const __nv_bfloat16* bias;   // (256)
  const uint8_t* tokens_fp8;   // (T, 7168)
  const float* tokens_scale;   // (56, T)
  const uint8_t* w13;          // (32, 4096, 7168)
  const float* w13_scale;      // (32, 32, 56)
  const uint8_t* w2;           // (32, 7168, 2048)
  const float* w2_scale;       // (32, 56, 16)
  __nv_bfloat16* output;       // (T, 7168)
  int tokens;
  int offset;
  float factor;
};

/// In scratch memory. A row is an assignment of a token to a local expert; rows of an expert are
/// neighbours, in the order of their tokens.
struct Scratch {
  int* head;           // [0] the next unit, [1] parts of the second projection; zero before it
  int* done;           // (tiles) slices of the first projection that are complete; zero before it
  int* part_count;     // (kSplitTiles, slices) the same for parts of a slice; zero before it
  int* count;          // (32) rows of an expert
  int* first;          // (32) its first row
  unsigned* local;     // (T) bit e: the token has local expert e
  int* row_token;      // (rows)
  int* place;          // (T, 8) rows of a token, in the order of experts
  float* weight;       // (T, 8) and their weights
  uint8_t* inner;      // (rows, 2048) SwiGLU outputs, fp8
  float* inner_scale;  // (rows, slices): of 64 channels with units of one piece, of 128 with two
  float* partial;      // (slices, kFirstParts, 128 x tile), or (2 x slices, 2, ..)
  __nv_bfloat16* result;  // (parts, rows, 7168)
  int64_t result_stride;  // elements between parts
  int zeros;              // ints from `head` that are to be zero
};

}  // namespace moe
