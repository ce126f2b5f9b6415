// Stands in for the solution's tensor_map.cuh: what copies by tensor map need on a CPU.
#pragma once

#include "cuda_runtime.h"

using cuuint64_t = uint64_t;
using cuuint32_t = uint32_t;

namespace moe {

struct TensorMap {
  const char* data;
  int dims;
  uint64_t extents[5];
  uint64_t strides[5];
  uint32_t box[5];
};

template <int kDims>
cudaError_t map_bytes(TensorMap& map, const void* data, const cuuint64_t (&extents)[kDims],
                      const cuuint64_t (&strides)[kDims - 1], const cuuint32_t (&box)[kDims]) {
  map = {static_cast<const char*>(data), kDims, {1, 1, 1, 1, 1}, {}, {1, 1, 1, 1, 1}};
  for (int i = 0; i < kDims; ++i) {
    if (extents[i] == 0 || box[i] == 0 || box[i] > 256) return cudaErrorInvalidValue;
    if (i > 0 && strides[i - 1] % 16 != 0) return cudaErrorInvalidValue;
    map.extents[i] = extents[i];
    map.strides[i] = i == 0 ? 1 : strides[i - 1];
    map.box[i] = box[i];
  }
  return box[0] == 128 ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace moe
