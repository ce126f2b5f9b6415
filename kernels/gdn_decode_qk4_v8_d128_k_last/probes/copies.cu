// Plain copies of a state: the floor that a decoding step is measured against.
//
// run(source, target, shape, hint): shape counts kShapes below, hint 1 marks lines that are read
// as the first to be evicted from the second-level cache. Target and source may be the same.
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

namespace {

using tvm::ffi::TensorView;

template <bool FirstOutT>
__device__ __forceinline__ float4 load(const float4* source) {
  float4 value;
  if constexpr (FirstOutT) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(source), "l"(policy));
  } else {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(source));
  }
  return value;
}

/// Every thread has PiecesT pieces of 16 bytes, all read before the first is written.
template <int ThreadsT, int PiecesT, bool FirstOutT>
__global__ void __launch_bounds__(ThreadsT) plain_copy(const float4* source, float4* target) {
  const size_t first = static_cast<size_t>(blockIdx.x) * ThreadsT * PiecesT + threadIdx.x;
  float4 values[PiecesT];
#pragma unroll
  for (int i = 0; i < PiecesT; ++i) values[i] = load<FirstOutT>(source + first + i * ThreadsT);
#pragma unroll
  for (int i = 0; i < PiecesT; ++i) target[first + i * ThreadsT] = values[i];
}

struct Call {
  const float4* source;
  float4* target;
  int64_t pieces;
  bool first_out;
  cudaStream_t stream;
};

template <int ThreadsT, int PiecesT>
void launch(const Call& call) {
  const auto blocks = static_cast<unsigned>(call.pieces / (ThreadsT * PiecesT));
  if (call.first_out) {
    plain_copy<ThreadsT, PiecesT, true>
        <<<blocks, ThreadsT, 0, call.stream>>>(call.source, call.target);
  } else {
    plain_copy<ThreadsT, PiecesT, false>
        <<<blocks, ThreadsT, 0, call.stream>>>(call.source, call.target);
  }
}

using Launch = void (*)(const Call&);
constexpr Launch kShapes[] = {launch<256, 1>, launch<128, 1>, launch<64, 4>,  launch<128, 4>,
                              launch<256, 4>, launch<128, 8>, launch<64, 16>, launch<64, 32>};

void run(TensorView source, TensorView target, int64_t shape, int64_t hint) {
  const DLDevice device = source.device();
  const Call call = {
      static_cast<const float4*>(source.data_ptr()), static_cast<float4*>(target.data_ptr()),
      source.numel() / 4, hint != 0,
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id))};
  kShapes[shape](call);
  TVM_FFI_CHECK(cudaGetLastError() == cudaSuccess, RuntimeError) << "launch of a copy failed";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
