// Tensor maps of the weights.
#pragma once

#include "problem.cuh"
#include "tensor_map.cuh"

namespace moe {

/// Boxes of 64 channels and 128 bytes of each: 8 rows of the up projection, then the same 8 of the
/// gate, and so on; that gives a thread of a product both of a channel.
inline cudaError_t map_first(TensorMap& map, const void* w13) {
  constexpr cuuint64_t kHalf = cuuint64_t{kInner} * kHidden;
  return map_bytes<5>(map, w13, {kHidden, 8, 2, kInner / 8, kLocal},
                      {kHidden, kHalf, 8 * kHidden, 2 * kHalf}, {128, 8, 2, kPieceChannels / 8, 1});
}

/// Boxes of 128 rows and 128 bytes of each.
inline cudaError_t map_second(TensorMap& map, const void* w2) {
  return map_bytes<2>(map, w2, {kInner, cuuint64_t{kLocal} * kHidden}, {kInner}, {128, kPieceRows});
}

}  // namespace moe
