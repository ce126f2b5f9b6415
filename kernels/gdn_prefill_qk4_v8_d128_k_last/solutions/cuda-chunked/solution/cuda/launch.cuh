// Launches of the two kernels.
#pragma once

#include <atomic>

#include "chain.cuh"
#include "prepare.cuh"

namespace gdn {
namespace {  // a static of a template is one for all libraries of a process otherwise

constexpr int kMostDevices = 64;

/// Allows the kernel its shared memory, once a device; the current one.
template <class S>
cudaError_t allow_shared_memory() {
  static std::atomic<bool> allowed[kMostDevices];
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  if (device < kMostDevices && allowed[device]) return cudaSuccess;
  const cudaError_t status = cudaFuncSetAttribute(
      chain<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (device < kMostDevices && status == cudaSuccess) allowed[device] = true;
  return status;
}

/// `processors` is the number of multiprocessors.
template <class S>
cudaError_t launch_chain(const Params& params, int processors, cudaStream_t stream) {
  const cudaError_t allowed = allow_shared_memory<S>();
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const int tasks = params.sequences * kHeads * S::kSplits;
  const int fit = processors * S::kBlocks;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(tasks < fit ? tasks : fit);
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, chain<S>, params);
}

cudaError_t launch_prepare(const Params& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(slots_of(params.tokens, params.sequences) * kHeads);
  prepare<<<blocks, kPrepareThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace
}  // namespace gdn
