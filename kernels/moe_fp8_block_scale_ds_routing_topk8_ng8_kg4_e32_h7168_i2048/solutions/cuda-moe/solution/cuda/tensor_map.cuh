// Tensor maps: what a bulk copy has to know of an array.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace moe {

using TensorMap = CUtensorMap;

/// A map of bytes; extents and box from the innermost dimension on, strides in bytes from the
/// second on. The driver's function is looked up: a solution does not link to the driver.
template <int kDims>
cudaError_t map_bytes(TensorMap& map, const void* data, const cuuint64_t (&extents)[kDims],
                      const cuuint64_t (&strides)[kDims - 1], const cuuint32_t (&box)[kDims]) {
  static std::atomic<void*> known;
  void* encoder = known;
  if (encoder == nullptr) {
    cudaDriverEntryPointQueryResult result;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &encoder, 12000, cudaEnableDefault, &result);
    if (status != cudaSuccess) return status;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    known = encoder;
  }
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encoder);
  cuuint32_t steps[kDims];
  for (cuuint32_t& step : steps) step = 1;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kDims, const_cast<void*>(data), extents, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace moe
