// Prefill of the gated delta rule over ragged sequences.
//
// Target: sm_90a (H200); also builds for sm_100a (B200), where wide.cu serves no call.
// Shapes: T tokens of N sequences; q, k (T, 4, 128), v (T, 8, 128), a, b (T, 8) bfloat16; A_log,
//   dt_bias (8) float32; state (N, 8, V = 128, K = 128) float32 or absent (zeros); cu_seqlens
//   (N + 1) int64; scale 0 or absent means 1 / sqrt(128); output (T, 8, 128) bfloat16; new_state
//   as state, zero for an empty sequence.
//
// Two parts: fused.cu does all in one kernel, for few tokens or many sequences; chunked.cu does
// what needs no state first, for all chunks at once, for long sequences, and wide.cu does the same
// in instructions that only Hopper has. dispatch.cuh says which serves a call.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "dispatch.cuh"
#include "problem.cuh"

namespace gdn {
namespace {

using tvm::ffi::Optional;
using tvm::ffi::TensorView;

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorName(status) << ", "
                                << cudaGetErrorString(status);
  }
}

/// Address of the first element, after shape, dtype, layout and device are what the kernel assumes.
template <typename T>
T* data_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape,
           uint8_t type_code, uint8_t bits) {
  const DLDataType dtype = tensor.dtype();
  TVM_FFI_CHECK(dtype.code == type_code && dtype.bits == bits && dtype.lanes == 1, TypeError)
      << name << " has another element type than the definition";
  bool same = tensor.ndim() == static_cast<int32_t>(shape.size());
  int64_t dim = 0;
  for (int64_t extent : shape) same = same && tensor.size(dim++) == extent;
  TVM_FFI_CHECK(same, ValueError) << name << " has another shape than the definition";
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << name << " must be contiguous";
  TVM_FFI_CHECK(tensor.device().device_type == kDLCUDA, ValueError) << name << " must be on a GPU";
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

template <typename T>
T* bf16_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape) {
  return data_of<T>(tensor, name, shape, kDLBfloat, 16);
}

float* f32_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape) {
  return data_of<float>(tensor, name, shape, kDLFloat, 32);
}

/// Scratch memory of a stream: what a call writes there, only the same call reads. Its first
/// `zeros` bytes are 0 between calls; a device always has the same number of them.
void* workspace_of(int device, cudaStream_t stream, size_t bytes, size_t zeros) {
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };
  static std::mutex mutex;
  static std::map<std::pair<int, cudaStream_t>, Block> blocks;
  const std::lock_guard<std::mutex> lock(mutex);
  Block& block = blocks[{device, stream}];
  if (block.bytes < bytes) {
    if (block.data != nullptr) check_cuda(cudaFree(block.data), "cudaFree of the workspace");
    block = {};
    check_cuda(cudaMalloc(&block.data, bytes), "cudaMalloc of the workspace");
    if (zeros > 0) {
      check_cuda(cudaMemsetAsync(block.data, 0, zeros, stream), "cudaMemset of the workspace");
    }
    block.bytes = bytes;
  }
  return block.data;
}

struct Device {
  int processors = 0;
  bool warpgroups = false;  // has their products: compute capability 9.x
};

const Device& device_of(int index) {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  const std::lock_guard<std::mutex> lock(mutex);
  Device& device = devices[index];
  if (device.processors == 0) {
    int major = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
               "compute capability");
    device.warpgroups = major == 9;
    check_cuda(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index),
               "number of multiprocessors");
  }
  return device;
}

void run(TensorView q, TensorView k, TensorView v, Optional<TensorView> state, TensorView A_log,
         TensorView a, TensorView dt_bias, TensorView b, TensorView cu_seqlens,
         Optional<double> scale, TensorView output, TensorView new_state) {
  const int64_t tokens = q.size(0);
  TVM_FFI_CHECK(cu_seqlens.numel() >= 1, ValueError) << "cu_seqlens is empty";
  const int64_t sequences = cu_seqlens.numel() - 1;
  // Positions of gates are counted in 32 bits.
  TVM_FFI_CHECK(tokens <= std::numeric_limits<int32_t>::max() / kHeads &&
                    sequences <= std::numeric_limits<int32_t>::max() / 64,
                ValueError)
      << "too many tokens or sequences";
  const double factor = scale.has_value() ? scale.value() : 0.0;

  Problem problem;
  problem.q = bf16_of<const __nv_bfloat16>(q, "q", {tokens, kQkHeads, kWidth});
  problem.k = bf16_of<const __nv_bfloat16>(k, "k", {tokens, kQkHeads, kWidth});
  problem.v = bf16_of<const __nv_bfloat16>(v, "v", {tokens, kHeads, kWidth});
  problem.state = nullptr;
  if (state.has_value()) {
    problem.state = f32_of(state.value(), "state", {sequences, kHeads, kWidth, kWidth});
  }
  problem.A_log = f32_of(A_log, "A_log", {kHeads});
  problem.a = bf16_of<const __nv_bfloat16>(a, "a", {tokens, kHeads});
  problem.dt_bias = f32_of(dt_bias, "dt_bias", {kHeads});
  problem.b = bf16_of<const __nv_bfloat16>(b, "b", {tokens, kHeads});
  problem.cu_seqlens =
      data_of<const int64_t>(cu_seqlens, "cu_seqlens", {sequences + 1}, kDLInt, 64);
  problem.output = bf16_of<__nv_bfloat16>(output, "output", {tokens, kHeads, kWidth});
  problem.new_state = f32_of(new_state, "new_state", {sequences, kHeads, kWidth, kWidth});
  problem.tokens = static_cast<int>(tokens);
  problem.sequences = static_cast<int>(sequences);
  problem.scale = static_cast<float>(factor != 0.0 ? factor : 1.0 / std::sqrt(double{kWidth}));
  if (sequences == 0) return;

  const DLDevice device = q.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const Device& properties = device_of(device.device_id);
  const Part part = part_for(tokens, sequences, properties.warpgroups);
  void* workspace = nullptr;
  if (const size_t bytes = workspace_bytes(part, problem); bytes > 0) {
    workspace = workspace_of(device.device_id, stream, bytes, zero_bytes(part));
  }
  check_cuda(launch(part, problem, workspace, properties.processors, stream), "launch");
}

}  // namespace
}  // namespace gdn

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, gdn::run);
