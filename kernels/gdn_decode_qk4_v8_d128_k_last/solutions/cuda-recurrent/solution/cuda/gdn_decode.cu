// One decode step of the gated delta rule, one kernel, one pass over the state.
//
// Target: sm_90a (H200); also builds for sm_100a (B200). Nothing here needs more than sm_80.
// Shapes: q, k (B, 1, 4, 128), v (B, 1, 8, 128) bfloat16; state (B, 8, V = 128, K = 128) float32
//   or absent (zeros); A_log, dt_bias (8) float32; a, b (B, 1, 8) bfloat16; scale 0 or absent
//   means 1 / sqrt(128); output (B, 1, 8, 128) bfloat16; new_state as state.
//
// Idea. With g and beta the gates of a head and S one row of its state,
//     delta = beta * (v - g * (k . S)),  S' = g * S + delta * k,
//     o = scale * (q . S') = scale * (g * (q . S) + (q . k) * delta),
// so both dot products are taken over the old row, which is read once, stays in registers and is
// written once. A row is shared by LANES_PER_ROW lanes and each of them holds 128 / LANES_PER_ROW
// columns: with 8 lanes a reduction takes 3 shuffle steps, every lane of the row ends with the sum
// (no broadcast), and one 16-byte load of the warp covers four whole 128-byte lines. All loads of
// a warp are issued before the first use. Gates are computed by every thread while they arrive.
//
// Bound. Memory: 8 * 64 KiB read and as much written per sequence; from 8 sequences on it should
// run near a copy of the same bytes. Below that the bound is the latency of one launch and one
// chain: load, dot, shuffles, store. Small batches are cut into more and smaller CTAs for that.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "decode_kernel.cuh"
#include "tunables.h"

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

template <int WarpsT, int RowsPerWarpT>
void launch(const Params& params, int64_t batch, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(batch * kHeads * (kHeadSize / (WarpsT * RowsPerWarpT)));
  if (params.state != nullptr) {
    decode_step<WarpsT, RowsPerWarpT, true><<<blocks, WarpsT * 32, 0, stream>>>(params);
  } else {
    decode_step<WarpsT, RowsPerWarpT, false><<<blocks, WarpsT * 32, 0, stream>>>(params);
  }
  check_cuda(cudaGetLastError(), "launch of decode_step");
}

void run(TensorView q, TensorView k, TensorView v, Optional<TensorView> state, TensorView A_log,
         TensorView a, TensorView dt_bias, TensorView b, Optional<double> scale,
         TensorView output, TensorView new_state) {
  const int64_t batch = q.size(0);
  if (batch == 0) return;
  const double factor = scale.has_value() ? scale.value() : 0.0;

  Params params;
  params.q = bf16_of<const __nv_bfloat16>(q, "q", {batch, 1, kQkHeads, kHeadSize});
  params.k = bf16_of<const __nv_bfloat16>(k, "k", {batch, 1, kQkHeads, kHeadSize});
  params.v = bf16_of<const __nv_bfloat16>(v, "v", {batch, 1, kHeads, kHeadSize});
  params.state = nullptr;
  if (state.has_value()) {
    params.state = f32_of(state.value(), "state", {batch, kHeads, kHeadSize, kHeadSize});
  }
  params.A_log = f32_of(A_log, "A_log", {kHeads});
  params.a = bf16_of<const __nv_bfloat16>(a, "a", {batch, 1, kHeads});
  params.dt_bias = f32_of(dt_bias, "dt_bias", {kHeads});
  params.b = bf16_of<const __nv_bfloat16>(b, "b", {batch, 1, kHeads});
  params.output = bf16_of<__nv_bfloat16>(output, "output", {batch, 1, kHeads, kHeadSize});
  params.new_state = f32_of(new_state, "new_state", {batch, kHeads, kHeadSize, kHeadSize});
  params.scale = static_cast<float>(factor != 0.0 ? factor : 1.0 / std::sqrt(double{kHeadSize}));

  const DLDevice device = q.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (batch <= KOPT_SMALL_BATCH) {
    launch<KOPT_SMALL_WARPS, KOPT_SMALL_ROWS_PER_WARP>(params, batch, stream);
  } else {
    launch<KOPT_LARGE_WARPS, KOPT_LARGE_ROWS_PER_WARP>(params, batch, stream);
  }
}

}  // namespace
}  // namespace gdn

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, gdn::run);
