// Which kernels serve a call, by the shape of the block table alone: lengths stay on the device.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>

#include "kernels.cuh"

namespace topk {
namespace {

/// What a device can hold.
struct Device {
  int processors = 0;
  int shared_bytes = 0;  // of a block, at most
  int clusters[2] = {};  // of index_rows at once, by kind
};

/// Few rows get large clusters, so that many blocks share one; more rows get clusters that leave
/// fewer multiprocessors over.
constexpr int kClusterBlocks[2] = {KOPT_CLUSTER, KOPT_SMALL_CLUSTER};

inline int cluster_kind(int rows) { return rows <= KOPT_FEW_ROWS ? 0 : 1; }

inline cudaLaunchConfig_t grid_of(dim3 blocks, size_t shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return config;
}

inline cudaLaunchAttribute cluster_of(int blocks) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  return attribute;
}

inline cudaError_t ask_device(int index, Device* device) {
  cudaError_t status = cudaDeviceGetAttribute(&device->processors,
                                              cudaDevAttrMultiProcessorCount, index);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&device->shared_bytes,
                                  cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  if (status != cudaSuccess) return status;
  for (auto kernel : {index_rows<false>, index_rows<true>, score_rows, select_rows}) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  device->shared_bytes);
    if (status != cudaSuccess) return status;
  }
  for (auto kernel : {index_rows<false>, index_rows<true>}) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (status != cudaSuccess) return status;
  }
  for (int kind = 0; kind < 2; ++kind) {
    cudaLaunchAttribute attribute = cluster_of(kClusterBlocks[kind]);
    cudaLaunchConfig_t config =
        grid_of(dim3(kClusterBlocks[kind]), device->shared_bytes, nullptr);
    config.attrs = &attribute;
    config.numAttrs = 1;
    status = cudaOccupancyMaxActiveClusters(&device->clusters[kind], index_rows<true>, &config);
    if (status != cudaSuccess) return status;
    if (device->clusters[kind] == 0) return cudaErrorInvalidConfiguration;
  }
  return cudaSuccess;
}

/// Asks the current device once.
inline cudaError_t device_of(Device* device) {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  int index = 0;
  cudaError_t status = cudaGetDevice(&index);
  if (status != cudaSuccess) return status;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = devices.find(index);
  if (known != devices.end()) {
    *device = known->second;
    return cudaSuccess;
  }
  status = ask_device(index, device);
  if (status == cudaSuccess) devices[index] = *device;
  return status;
}

/// Whether the scores of so long a context fit one block.
inline bool in_one_launch(const Device& device, int width) {
  return storage_bytes(width, true) <= static_cast<size_t>(device.shared_bytes);
}

inline cudaError_t launch_list(const Problem& p, cudaStream_t stream) {
  list_rows<<<p.rows * (kSelected / 4 / KOPT_LIST_THREADS), KOPT_LIST_THREADS, 0, stream>>>(p);
  return cudaGetLastError();
}

inline cudaError_t launch_one(Problem p, const Device& device, cudaStream_t stream) {
  p.staged = static_cast<int64_t>(p.rows) * p.width <= kStaged;
  const int kind = cluster_kind(p.rows);
  cudaLaunchConfig_t config = grid_of(dim3(device.clusters[kind] * kClusterBlocks[kind]),
                                      storage_bytes(p.width, p.staged), stream);
  cudaLaunchAttribute attribute = cluster_of(kClusterBlocks[kind]);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const bool few = p.width * kPage <= kHeld && p.rows <= static_cast<int>(config.gridDim.x);
  const auto kernel = few ? index_rows<true> : index_rows<false>;
  return cudaLaunchKernelEx(&config, kernel, p);
}

/// Needs p.scores.
inline cudaError_t launch_two(const Problem& p, const Device& device, cudaStream_t stream) {
  const unsigned parts = static_cast<unsigned>(std::clamp(2 * device.processors / p.rows, 1, p.width));
  cudaLaunchConfig_t config = grid_of(dim3(p.rows, parts), storage_bytes(0, false), stream);
  const cudaError_t status = cudaLaunchKernelEx(&config, score_rows, p);
  if (status != cudaSuccess) return status;
  config.gridDim = dim3(p.rows);
  return cudaLaunchKernelEx(&config, select_rows, p);
}

}  // namespace
}  // namespace topk
