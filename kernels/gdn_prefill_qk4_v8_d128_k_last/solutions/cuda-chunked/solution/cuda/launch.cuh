// Launches of the kernels.
#pragma once

#include <atomic>

#include "chain.cuh"
#include "fused.cuh"
#include "prepare.cuh"
#include "tiles.cuh"
#include "wide.cuh"

namespace gdn {
namespace {  // a static of a template is one for all libraries of a process otherwise

constexpr int kMostDevices = 64;

/// Allows the kernel its shared memory, once a device; the current one.
template <auto kKernel>
cudaError_t allow_shared_memory(int bytes) {
  static std::atomic<bool> allowed[kMostDevices];
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  if (device < kMostDevices && allowed[device]) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (device < kMostDevices && status == cudaSuccess) allowed[device] = true;
  return status;
}

cudaError_t launch_prepare(const Params& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(slots_of(params.tokens, params.sequences) * kHeads);
  prepare<<<blocks, kPrepareThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_prepare_tiles(const Params& params, const Maps& maps, cudaStream_t stream) {
  constexpr int kBytes = Workbench::kBytes + 1024;
  const cudaError_t allowed = allow_shared_memory<prepare_tiles>(kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto blocks = static_cast<unsigned>(slots_of(params.tokens, params.sequences) * kHeads);
  prepare_tiles<<<blocks, kPrepareThreads, kBytes, stream>>>(params, maps);
  return cudaGetLastError();
}

/// Launches the second kernel such that it may start while the first one runs; `processors` is the
/// number of multiprocessors, an even one where clusters are used.
template <class S, auto kKernel, bool kCluster = false, class... Arguments>
cudaError_t launch_second(const Params& params, int processors, cudaStream_t stream,
                          const Arguments&... arguments) {
  const cudaError_t allowed = allow_shared_memory<kKernel>(S::kSharedBytes);
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {2, 1, 1};
  const int tasks = params.sequences * kHeads * S::kSplits;
  const int fit = kCluster ? processors / 2 * 2 : processors * S::kBlocks;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(tasks < fit ? tasks : fit);
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = kCluster ? 2 : 1;
  return cudaLaunchKernelEx(&config, kKernel, params, arguments...);
}

template <class S>
cudaError_t launch_chain(const Params& params, int processors, cudaStream_t stream) {
  return launch_second<S, chain<S>>(params, processors, stream);
}

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

/// The driver's function; found without linking to the driver.
cudaError_t find_encoder(EncodeTensorMap& encode) {
  static std::atomic<void*> known;
  void* found = known;
  if (found == nullptr) {
    cudaDriverEntryPointQueryResult result;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (status != cudaSuccess) return status;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    known = found;
  }
  encode = reinterpret_cast<EncodeTensorMap>(found);
  return cudaSuccess;
}

/// Maps rows x columns for copies of 64 rows and 128 bytes.
cudaError_t map_rows(TensorMap& map, CUtensorMapDataType type, int bytes, const void* data,
                     int64_t rows, int columns) {
  EncodeTensorMap encode;
  const cudaError_t found = find_encoder(encode);
  if (found != cudaSuccess) return found;
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * bytes};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(128 / bytes), 64};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(&map, type, 2, const_cast<void*>(data), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// With at least one token.
cudaError_t map_tensors(Maps& maps, const Params& params) {
  constexpr auto kBf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  constexpr auto kFloat = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const int64_t states = static_cast<int64_t>(params.sequences) * kHeads * kWidth;
  cudaError_t status = map_rows(maps.q, kBf16, 2, params.q, params.tokens, kKeyHeads * kWidth);
  if (status != cudaSuccess) return status;
  status = map_rows(maps.k, kBf16, 2, params.k, params.tokens, kKeyHeads * kWidth);
  if (status != cudaSuccess) return status;
  status = map_rows(maps.v, kBf16, 2, params.v, params.tokens, kHeads * kWidth);
  if (status != cudaSuccess) return status;
  maps.state = {};
  if (params.state != nullptr) {
    status = map_rows(maps.state, kFloat, 4, params.state, states, kWidth);
    if (status != cudaSuccess) return status;
  }
  return map_rows(maps.new_state, kFloat, 4, params.new_state, states, kWidth);
}

template <class W>
cudaError_t launch_wide(const Params& params, const Maps& maps, int processors,
                        cudaStream_t stream) {
  return launch_second<W, wide_chain<W>, W::kPaired>(params, processors, stream, maps);
}

/// One launch, with at least one token and at most kFusedSequences sequences; the first flags of
/// scratch memory are 0.
template <class W>
cudaError_t launch_fused(const Params& params, const Maps& maps, int processors,
                         cudaStream_t stream) {
  const cudaError_t allowed = allow_shared_memory<fused<W>>(W::kSharedBytes);
  if (allowed != cudaSuccess) return allowed;
  const int tasks = params.sequences * kHeads * W::kSplits;
  const int teams = processors - tasks > 1 ? processors - tasks : 1;
  fused<W><<<teams + tasks, W::kThreads, W::kSharedBytes, stream>>>(params, maps);
  return cudaGetLastError();
}

}  // namespace
}  // namespace gdn
