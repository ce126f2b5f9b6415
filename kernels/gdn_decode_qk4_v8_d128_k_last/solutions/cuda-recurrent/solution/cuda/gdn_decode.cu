// One decode step of the gated delta rule, one kernel, one pass over the state.
//
// Target: sm_90a (H200); also builds for sm_100a (B200).
// Shapes: q, k (B, 1, 4, 128), v (B, 1, 8, 128) bfloat16; state (B, 8, V = 128, K = 128) float32
//   or absent (zeros); A_log, dt_bias (8) float32; a, b (B, 1, 8) bfloat16; scale 0 or absent
//   means 1 / sqrt(128); output (B, 1, 8, 128) bfloat16; new_state as state.
//
// Idea. With g and beta the gates of a head and S one row of its state,
//     delta = beta * (v - g * (k . S)),  S' = g * S + delta * k,
//     o = scale * (q . S') = scale * (g * (q . S) + (q . k) * delta),
// so both dot products are taken over the old row, which is read once, stays on the chip and is
// written once. Sixteen lanes share a row, so that a reduction takes 4 shuffle steps and leaves
// the sum in every lane that updates the row. All loads of a warp are issued before the first
// use; the gates are computed while they are on their way.
//
// One wave. A batch is fastest when all its CTAs run at once: every read of the state is under way
// before the first write, and no CTA waits for the stores of another to drain. The shape of a CTA
// therefore grows with the batch, from 16 rows a CTA over 16 and 32 rows a warp in registers to 32
// rows a warp in registers and shared memory, as long as the multiprocessors hold all of them.
//
// Bound. Memory: 8 * 64 KiB read and as much written per sequence. Up to a few sequences it is the
// latency of one launch and one chain: load, dot, shuffles, store.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "decode_kernel.cuh"
#include "hybrid_kernel.cuh"
#include "row_math.cuh"
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

// The last number leaves a thread the registers for its share of the rows (sm_90a, sm_100a).
using Small = Shape<KOPT_LANES_PER_ROW, KOPT_SMALL_WARPS, KOPT_SMALL_ROWS_PER_WARP, 1>;
using Middle = Shape<KOPT_LANES_PER_ROW, KOPT_MIDDLE_WARPS, KOPT_MIDDLE_ROWS_PER_WARP,
                     (KOPT_MIDDLE_ROWS_PER_WARP >= 8 ? 24 : 32) / KOPT_MIDDLE_WARPS>;
using Rows8 = Shape<KOPT_ROWS8_LANES, 4, 8, 6>;
using Rows16 = Shape<16, 2, 16, 8>;
using Rows32 = Shape<16, 1, 32, 12>;
using Hybrid = HybridShape<KOPT_LANES_PER_ROW, KOPT_BULK_ROWS>;

/// Whether all CTAs of a shape run at once.
template <typename ShapeT>
bool one_wave(int64_t rows, int multiprocessors) {
  return rows <= int64_t{multiprocessors} * ShapeT::kCtas * ShapeT::kRows;
}

template <typename ShapeT, bool HasStateT>
void launch(const Params& params, int64_t rows, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(rows / ShapeT::kRows);
  decode_step<ShapeT, HasStateT><<<blocks, ShapeT::kWarps * 32, 0, stream>>>(params);
}

void launch_hybrid(const Params& params, int64_t rows, cudaStream_t stream) {
  const auto kernel = decode_step_hybrid<KOPT_LANES_PER_ROW, KOPT_BULK_ROWS>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "shared memory of decode_step_hybrid");
  kernel<<<static_cast<unsigned>(rows / Hybrid::kRows), 32, 0, stream>>>(params);
}

void dispatch(const Params& params, int64_t batch, int device, cudaStream_t stream) {
  const int64_t rows = batch * kHeads * kHeadSize;
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "number of multiprocessors");
  if (params.state == nullptr) {
    launch<Middle, false>(params, rows, stream);
  } else if (batch <= KOPT_SMALL_BATCH) {
    launch<Small, true>(params, rows, stream);
  } else if (!KOPT_ONE_WAVE || batch <= KOPT_MIDDLE_BATCH) {
    launch<Middle, true>(params, rows, stream);
  } else if (one_wave<Middle>(rows, multiprocessors)) {
    launch<Rows8, true>(params, rows, stream);
  } else if (one_wave<Rows16>(rows, multiprocessors)) {
    launch<Rows16, true>(params, rows, stream);
  } else if (one_wave<Rows32>(rows, multiprocessors)) {
    launch<Rows32, true>(params, rows, stream);
  } else if (one_wave<Hybrid>(rows, multiprocessors)) {
    launch_hybrid(params, rows, stream);
  } else {
    launch<Rows16, true>(params, rows, stream);
  }
  check_cuda(cudaGetLastError(), "launch of the step");
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
  dispatch(params, batch, device.device_id, stream);
}

}  // namespace
}  // namespace gdn

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, gdn::run);
