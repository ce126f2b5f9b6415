// Mixture-of-experts layer with fp8 block scales and DeepSeek routing.
//
// Target: sm_90a (H200); also builds for sm_100a (B200), where plain.cuh serves all calls.
// Shapes: T tokens of 7168 channels, 256 experts of which 32 are local, 2048 intermediate channels;
//   see problem.cuh. Launches: routing (and, beyond 128 tokens, packing), both projections, sum.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>

#include "layer.cuh"

namespace moe {
namespace {

using tvm::ffi::Tensor;
using tvm::ffi::TensorView;

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorName(status) << ", "
                                << cudaGetErrorString(status);
  }
}

/// Address of the first element, after shape, dtype, layout and device are what the kernels assume.
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

const uint8_t* fp8_of(const TensorView& tensor, const char* name,
                      std::initializer_list<int64_t> shape) {
  return data_of<const uint8_t>(tensor, name, shape, kDLFloat8_e4m3fn, 8);
}

const float* f32_of(const TensorView& tensor, const char* name,
                    std::initializer_list<int64_t> shape) {
  return data_of<const float>(tensor, name, shape, kDLFloat, 32);
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

void run(TensorView routing_logits, TensorView routing_bias, TensorView hidden_states,
         TensorView hidden_states_scale, TensorView gemm1_weights, TensorView gemm1_weights_scale,
         TensorView gemm2_weights, TensorView gemm2_weights_scale, int64_t local_expert_offset,
         double routed_scaling_factor, TensorView output) {
  const int64_t tokens = routing_logits.size(0);
  // Rows, up to eight of a token, are counted in 32 bits.
  TVM_FFI_CHECK(tokens < (1 << 24), ValueError) << "too many tokens";
  Problem problem;
  problem.logits = f32_of(routing_logits, "routing_logits", {tokens, kExperts});
  problem.bias =
      data_of<const __nv_bfloat16>(routing_bias, "routing_bias", {kExperts}, kDLBfloat, 16);
  problem.tokens_fp8 = fp8_of(hidden_states, "hidden_states", {tokens, kHidden});
  problem.tokens_scale =
      f32_of(hidden_states_scale, "hidden_states_scale", {kHiddenBlocks, tokens});
  problem.w13 = fp8_of(gemm1_weights, "gemm1_weights", {kLocal, 2 * kInner, kHidden});
  problem.w13_scale = f32_of(gemm1_weights_scale, "gemm1_weights_scale",
                             {kLocal, 2 * kInnerBlocks, kHiddenBlocks});
  problem.w2 = fp8_of(gemm2_weights, "gemm2_weights", {kLocal, kHidden, kInner});
  problem.w2_scale = f32_of(gemm2_weights_scale, "gemm2_weights_scale",
                            {kLocal, kHiddenBlocks, kInnerBlocks});
  problem.output =
      data_of<__nv_bfloat16>(output, "output", {tokens, kHidden}, kDLBfloat, 16);
  problem.tokens = static_cast<int>(tokens);
  problem.offset = static_cast<int>(local_expert_offset);
  problem.factor = static_cast<float>(routed_scaling_factor);
  if (tokens == 0) return;

  const DLDevice device = routing_logits.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const Device& properties = device_of(device.device_id);
  const int tile = properties.warpgroups ? tile_for(problem.tokens) : 0;
  Scratch scratch;
  const auto bytes = static_cast<int64_t>(lay_out(scratch, nullptr, problem.tokens, tile));
  // The caller's allocator: what it gets back now is not reused before this stream's work is done.
  const Tensor memory = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {bytes + 1024},
                                             DLDataType{kDLUInt, 8, 1}, device);
  char* const base = static_cast<char*>(memory.data_ptr());
  lay_out(scratch, base + (-reinterpret_cast<uintptr_t>(base) & 1023), problem.tokens, tile);
  check_cuda(launch_layer(problem, scratch, tile, properties.processors, stream), "launch");
}

}  // namespace
}  // namespace moe

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, moe::run);
