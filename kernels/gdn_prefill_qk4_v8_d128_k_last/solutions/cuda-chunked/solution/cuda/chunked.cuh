// Which kernels a call takes. What another solution includes to hand long sequences over: fill in
// Params but for its scratch memory, then call launch_chunked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tunables.h"

#include "launch.cuh"

namespace gdn {
namespace {

constexpr int64_t kFlags = 1 << 14;  // so many chunks and heads at most go to the fused kernel

struct Device {
  int processors;
  bool warpgroups;  // has wgmma: compute capability 9.x
};

cudaError_t describe(Device& device, int index) {
  cudaError_t status =
      cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index);
  if (status != cudaSuccess) return status;
  int major = 0;
  status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  device.warpgroups = major == 9;
  return status;
}

/// Bytes of scratch memory; the first kFlags * 4 of them have to be 0 before the first call, and are
/// after each. Calls that may run at the same time need their own.
inline int64_t scratch_bytes(int64_t tokens, int64_t sequences) {
  constexpr int64_t kRecord =
      sizeof(TileRecord) > sizeof(Record) ? sizeof(TileRecord) : sizeof(Record);
  return kFlags * 4 + slots_of(tokens, sequences) * kHeads * kRecord;
}

/// For any number of tokens and sequences.
inline cudaError_t launch_chunked(Params params, char* scratch, const Device& device,
                                  cudaStream_t stream) {
  params.flags = reinterpret_cast<unsigned*>(scratch);
  params.workspace = scratch + kFlags * 4;
  if (device.warpgroups && params.tokens > 0) {
    Maps maps;
    const cudaError_t mapped = map_tensors(maps, params);
    if (mapped != cudaSuccess) return mapped;
    if (params.sequences <= KOPT_FUSED_UP_TO &&
        slots_of(params.tokens, params.sequences) * kHeads <= kFlags) {
      return launch_fused<Wide<3, true>>(params, maps, device.processors, stream);
    }
    const cudaError_t prepared = launch_prepare_tiles(params, maps, stream);
    if (prepared != cudaSuccess) return prepared;
    return launch_wide<Wide<3>>(params, maps, device.processors, stream);
  }
  const cudaError_t prepared = launch_prepare(params, stream);
  if (prepared != cudaSuccess) return prepared;
  if (params.sequences <= KOPT_SPLIT8_UP_TO) {
    return launch_chain<Shape<16, 1, 3, false, 1, KOPT_PARTS>>(params, device.processors, stream);
  }
  if (params.sequences <= KOPT_SPLIT4_UP_TO) {
    return launch_chain<Shape<32, 1, 3, false, 1>>(params, device.processors, stream);
  }
#if KOPT_SOLO_FROM < (1 << 16)
  if (params.sequences >= KOPT_SOLO_FROM) {
    return launch_chain<Shape<128, 1, 2, true, 1>>(params, device.processors, stream);
  }
#endif
  return launch_chain<Shape<64, KOPT_TILES, 2, false, 1>>(params, device.processors, stream);
}

}  // namespace
}  // namespace gdn
