// Prefill of the gated delta rule over ragged sequences in one kernel.
//
// Target: sm_90a (H200); also builds for sm_100a (B200). It needs sm_90 for the L2 prefetch.
// Shapes: q, k (T, 4, 128), v (T, 8, 128) bfloat16; state (N, 8, V = 128, K = 128) float32 or
//   absent (zeros); A_log, dt_bias (8) float32; a, b (T, 8) bfloat16; cu_seqlens (N + 1) int64;
//   scale 0 or absent means 1 / sqrt(128); output (T, 8, 128) bfloat16; new_state as state.
//
// Idea. The chain from chunk to chunk is the bound, so it is kept short: chunks of 16 tokens, and
// the 16 x 128 piece of the state that a value warp owns never leaves its registers. Products are
// arranged so that what one leaves in a lane is what the next wants there (value_side.cuh). What
// is not in the chain is done by others: a loader copies tokens to a ring in shared memory
// (load_side.cuh), key warps make what needs no state, ahead of time: gates, the inverse of a
// chunk's triangular system, q k^T (key_side.cuh), and a read warp for each value warp makes the
// output (read_side.cuh). With few sequences a CTA has one value warp, and 64 CTAs share a
// sequence; each repeats the key side.
//
// Numbers. Operands of products are rounded to bfloat16, sums and the state are float32; the
// inverse is found by substitution in float32. All exponents are differences of sums of
// logarithms, later minus earlier, so never positive.
//
// Bound. Latency: launch, one trip to memory, about half a microsecond for 16 tokens of the longest
// sequence, one store.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "prefill_kernel.cuh"

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

template <int ValueWarpsT, int KeyWarpsT>
void launch(const Params& params, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<ValueWarpsT, KeyWarpsT>);
  const auto kernel = prefill<ValueWarpsT, KeyWarpsT>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "shared memory of prefill");
  const auto blocks =
      static_cast<unsigned>(params.sequences * kHeads * (kWidth / (ValueWarpsT * kRows)));
  kernel<<<blocks, Roles<ValueWarpsT, KeyWarpsT>::kWarps * 32, kBytes, stream>>>(params);
  check_cuda(cudaGetLastError(), "launch of prefill");
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

  Params params;
  params.q = bf16_of<const __nv_bfloat16>(q, "q", {tokens, kQkHeads, kWidth});
  params.k = bf16_of<const __nv_bfloat16>(k, "k", {tokens, kQkHeads, kWidth});
  params.v = bf16_of<const __nv_bfloat16>(v, "v", {tokens, kHeads, kWidth});
  params.state = nullptr;
  if (state.has_value()) {
    params.state = f32_of(state.value(), "state", {sequences, kHeads, kWidth, kWidth});
  }
  params.A_log = f32_of(A_log, "A_log", {kHeads});
  params.a = bf16_of<const __nv_bfloat16>(a, "a", {tokens, kHeads});
  params.dt_bias = f32_of(dt_bias, "dt_bias", {kHeads});
  params.b = bf16_of<const __nv_bfloat16>(b, "b", {tokens, kHeads});
  params.cu_seqlens =
      data_of<const int64_t>(cu_seqlens, "cu_seqlens", {sequences + 1}, kDLInt, 64);
  params.output = bf16_of<__nv_bfloat16>(output, "output", {tokens, kHeads, kWidth});
  params.new_state = f32_of(new_state, "new_state", {sequences, kHeads, kWidth, kWidth});
  params.tokens = static_cast<int>(tokens);
  params.sequences = static_cast<int>(sequences);
  params.scale = static_cast<float>(factor != 0.0 ? factor : 1.0 / std::sqrt(double{kWidth}));
  if (sequences == 0) return;

  const DLDevice device = q.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (sequences <= KOPT_FEW_SEQUENCES) {
    launch<KOPT_FEW_VALUE_WARPS, KOPT_FEW_KEY_WARPS>(params, stream);
  } else {
    launch<KOPT_MANY_VALUE_WARPS, KOPT_MANY_KEY_WARPS>(params, stream);
  }
}

}  // namespace
}  // namespace gdn

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, gdn::run);
