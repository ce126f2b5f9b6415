// One call, and the constants of the operator.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "tunables.h"

namespace topk {

constexpr int kHeads = 64;
constexpr int kDim = 128;
constexpr int kPage = 64;
constexpr int kPageBytes = kPage * (kDim + 4);  // values of all tokens, then their scales
constexpr int kSelected = 2048;

constexpr int kWarpgroups = KOPT_WARPGROUPS;
constexpr int kThreads = 128 * kWarpgroups;
constexpr int kWarps = kThreads / 32;

constexpr int kStaged = 4096;  // entries of a block table that a block keeps

struct Problem {
  const uint8_t* q;        // (rows, 64, 128) e4m3
  const uint8_t* cache;    // (cached, kPageBytes)
  const float* weights;    // (rows, 64)
  const int* lengths;      // (rows)
  const int* table;        // (rows, width)
  int* selected;           // (rows, 2048)
  int rows;
  int width;
  bool staged = false;      // whether blocks keep the whole block table in shared memory
  float* scores = nullptr;  // (rows, width * 64), where scores do not fit shared memory
};

}  // namespace topk
