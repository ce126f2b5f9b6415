// Launches one of the kernels by its name.
#include <cstring>
#include <numeric>
#include <string>

#include "kernels.cuh"

namespace {

using Kernel = void (*)(wrong::Call);

struct Named {
  const char* name;
  Kernel kernel;
};

#define NAMED(name) \
  { #name, wrong::name }
constexpr Named kKernels[] = {
    NAMED(misaligned),          NAMED(beyond),           NAMED(no_address),
    NAMED(outside),             NAMED(misaligned_copy),  NAMED(unawaited_copy),
    NAMED(unawaited_bulk_copy), NAMED(unexpected_bytes), NAMED(unawaited_product),
    NAMED(no_barrier),          NAMED(missing_arrival),  NAMED(many_arrivals),
    NAMED(other_counts),        NAMED(parted_lanes),     NAMED(left_out_lanes),
    NAMED(endless),             NAMED(ended_neighbour),  NAMED(large_variable),
    NAMED(right),               NAMED(waits_for_the_next_block),
};

}  // namespace

/// Two blocks of two warps, in one cluster if `cluster` is 2. Returns what a launch returns, or 1000
/// where the kernel has raised its flag. `asked` is what the kernel may have, if not 0.
extern "C" int run(const char* name, int cluster, int bytes, int asked) {
  alignas(16) static float data[32];
  std::iota(data, data + 32, 0.0f);
  static int flag;
  fibers::forget_reads();
  fibers::allow_reads(data, sizeof data);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2);
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (const Named& each : kKernels) {
    if (std::strcmp(each.name, name) != 0) continue;
    if (asked > 0) {
      const cudaError_t status = cudaFuncSetAttribute(
          each.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, asked);
      if (status != cudaSuccess) return status;
    }
    const cudaError_t status =
        cudaLaunchKernelEx(&config, each.kernel, wrong::Call{data, &flag});
    const bool raised = std::strcmp(name, "right") == 0 && flag != 0;
    return raised ? 1000 : status;
  }
  return -1;
}
