// Tensor maps: what a bulk copy has to know of a matrix in global memory.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace gdn {

using TensorMap = CUtensorMap;

/// Maps rows x columns, of `bytes` 2 (bfloat16) or 4 (float32) an element, for copies of 64 rows and
/// 128 bytes of each. The driver's function is looked up: a solution does not link to the driver.
inline cudaError_t map_rows(TensorMap& map, int bytes, const void* data, int64_t rows,
                            int columns) {
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
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * bytes};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(128 / bytes), 64};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = encode(
      &map, bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
      const_cast<void*>(data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace gdn
