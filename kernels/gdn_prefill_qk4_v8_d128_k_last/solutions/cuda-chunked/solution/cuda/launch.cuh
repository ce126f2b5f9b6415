// Launches of the two kernels.
#pragma once

#include "chain.cuh"
#include "prepare.cuh"

namespace gdn {
namespace {  // a static of a template is one for all libraries of a process otherwise

/// `processors` is the number of multiprocessors.
template <class S>
cudaError_t launch_chain(const Params& params, int processors, cudaStream_t stream) {
  static const cudaError_t raised = cudaFuncSetAttribute(
      chain<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (raised != cudaSuccess) return raised;
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
