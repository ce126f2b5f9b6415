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
  int clusters = 0;      // of index_rows at once
};

inline cudaLaunchConfig_t grid_of(dim3 blocks, size_t shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return config;
}

inline cudaLaunchAttribute cluster_attribute() {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(kCluster), 1, 1};
  return attribute;
}

inline cudaError_t ask_device(int index, Device* device) {
  cudaError_t status = cudaDeviceGetAttribute(&device->processors,
                                              cudaDevAttrMultiProcessorCount, index);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&device->shared_bytes,
                                  cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  if (status != cudaSuccess) return status;
  for (auto kernel : {index_rows, score_rows, select_rows}) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  device->shared_bytes);
    if (status != cudaSuccess) return status;
  }
  status = cudaFuncSetAttribute(index_rows, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config = grid_of(dim3(kCluster), device->shared_bytes, nullptr);
  cudaLaunchAttribute attribute = cluster_attribute();
  config.attrs = &attribute;
  config.numAttrs = 1;
  status = cudaOccupancyMaxActiveClusters(&device->clusters, index_rows, &config);
  if (status != cudaSuccess) return status;
  return device->clusters > 0 ? cudaSuccess : cudaErrorInvalidConfiguration;
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
  cudaLaunchConfig_t config =
      grid_of(dim3(device.clusters * kCluster), storage_bytes(p.width, p.staged), stream);
  cudaLaunchAttribute attribute = cluster_attribute();
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, index_rows, p);
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
