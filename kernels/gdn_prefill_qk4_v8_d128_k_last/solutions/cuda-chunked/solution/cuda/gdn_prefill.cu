// Gated DeltaNet over ragged sequences in chunks of 64 tokens: two kernels, mma.sync.
//
// Target: sm_90a (H200); also builds for sm_100a (B200). Nothing here needs more than sm_90.
// Shapes: T tokens of N sequences; q, k (T, 4, 128), v (T, 8, 128), a, b (T, 8) bfloat16; A_log,
//   dt_bias (8) float32; state (N, 8, V = 128, K = 128) float32 or absent (zeros); cu_seqlens
//   (N + 1) int64; scale 0 or absent means 1 / sqrt(128); output (T, 8, 128) bfloat16; new_state
//   as state, zero for an empty sequence.
//
// Idea. With D_ij the decay from token j to token i of a chunk, d_i that from before the chunk and
// S the state before it,
//     T = (I + tril(beta_i D_ij k_i . k_j, -1))^-1 diag(beta),   u = T (v - d k S^T),
//     o = scale (d q S^T + tril(D_ij q_i . k_j) u),              S' = d_64 S + u^T (D_64 k).
// T and the factor of u in o need no state: `prepare` computes them for all chunks at once, 16 KiB
// for a chunk and head. `chain` walks along a sequence. A warp of it has 16 or 32 columns of V and
// all of K of the state as accumulators, transposed, so that S rounded to bfloat16 is the first
// operand of the next product as it lies in registers; u is turned from accumulator to operand in
// the same way. So no warp of the chain waits for another one: V is split over warps and blocks.
// A partner warp gets S and u through shared memory and computes o.
//
// The host knows neither lengths nor offsets: blocks find their sequence on the device.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <utility>

#include "chunked.cuh"

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

template <typename T>
T* bf16_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape) {
  return data_of<T>(tensor, name, shape, kDLBfloat, 16);
}

float* f32_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape) {
  return data_of<float>(tensor, name, shape, kDLFloat, 32);
}

/// Scratch memory of a stream: what a call writes there, only the same call reads. Its flags are 0
/// between calls.
char* workspace_of(int device, cudaStream_t stream, size_t bytes) {
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
    check_cuda(cudaMemsetAsync(block.data, 0, kFlags * 4, stream), "cudaMemset of the workspace");
    block.bytes = bytes;
  }
  return static_cast<char*>(block.data);
}

const Device& device_of(int index) {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = devices.find(index);
  if (found != devices.end()) return found->second;
  Device device;
  check_cuda(describe(device, index), "attributes of the device");
  return devices.emplace(index, device).first->second;
}

void run(TensorView q, TensorView k, TensorView v, Optional<TensorView> state, TensorView A_log,
         TensorView a, TensorView dt_bias, TensorView b, TensorView cu_seqlens,
         Optional<double> scale, TensorView output, TensorView new_state) {
  TVM_FFI_CHECK(cu_seqlens.numel() >= 1, ValueError) << "cu_seqlens is empty";
  const int64_t T = q.size(0);
  const int64_t N = cu_seqlens.numel() - 1;
  constexpr int H = kHeads, Q = kKeyHeads, D = kWidth;
  Params params;
  params.q = bf16_of<const __nv_bfloat16>(q, "q", {T, Q, D});
  params.k = bf16_of<const __nv_bfloat16>(k, "k", {T, Q, D});
  params.v = bf16_of<const __nv_bfloat16>(v, "v", {T, H, D});
  params.state = state.has_value() ? f32_of(state.value(), "state", {N, H, D, D}) : nullptr;
  params.A_log = f32_of(A_log, "A_log", {H});
  params.a = bf16_of<const __nv_bfloat16>(a, "a", {T, H});
  params.dt_bias = f32_of(dt_bias, "dt_bias", {H});
  params.b = bf16_of<const __nv_bfloat16>(b, "b", {T, H});
  params.cu_seqlens = data_of<const int64_t>(cu_seqlens, "cu_seqlens", {N + 1}, kDLInt, 64);
  params.output = bf16_of<__nv_bfloat16>(output, "output", {T, H, D});
  params.new_state = f32_of(new_state, "new_state", {N, H, D, D});
  const double factor = scale.has_value() ? scale.value() : 0.0;
  params.scale = static_cast<float>(factor != 0.0 ? factor : 1.0 / std::sqrt(double{D}));
  TVM_FFI_CHECK(T < (1 << 28) && N < (1 << 16), ValueError) << "more tokens than indices";
  params.tokens = static_cast<int>(T);
  params.sequences = static_cast<int>(N);
  if (N == 0) return;

  const DLDevice device = q.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  char* scratch =
      workspace_of(device.device_id, stream, static_cast<size_t>(scratch_bytes(T, N)));
  check_cuda(launch_chunked(params, scratch, device_of(device.device_id), stream), "launch");
}

}  // namespace
}  // namespace gdn

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, gdn::run);
