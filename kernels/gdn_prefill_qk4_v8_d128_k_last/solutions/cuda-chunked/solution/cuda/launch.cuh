// Launches of the two kernels.
#pragma once

#include "chain.cuh"
#include "prepare.cuh"

namespace gdn {

template <class S>
cudaError_t launch_chain(const Params& params, cudaStream_t stream) {
  static const cudaError_t raised = cudaFuncSetAttribute(
      chain<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (raised != cudaSuccess) return raised;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(params.sequences * kHeads * S::kSplits);
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const bool sorted = params.sequences > 1 && params.sequences <= kMostSorted;
  return cudaLaunchKernelEx(&config, chain<S>, params, sorted);
}

inline cudaError_t launch_prepare(const Params& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(slots_of(params.tokens, params.sequences) * kHeads);
  prepare<<<blocks, kPrepareThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace gdn
