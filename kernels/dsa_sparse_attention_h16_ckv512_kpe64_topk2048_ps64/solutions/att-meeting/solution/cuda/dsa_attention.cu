// Attention of a query token over at most 2048 selected tokens of a paged cache, 16 heads.
//
// Target: sm_90a (H200); also builds for sm_100a (B200).
// Shapes: q_nope (T, 16, 512), q_pe (T, 16, 64), ckv_cache (pages, 64, 512), kpe_cache (pages, 64,
//   64) bfloat16; sparse_indices (T, 2048) int32, negative selects nothing; output (T, 16, 512)
//   bfloat16; lse (T, 16) float32, base 2.
//
// Idea. 16 to 64 blocks share a query token, one on each multiprocessor: each gathers 128 to 32 of its
// tokens, and asks for all of them before it computes anything. The 16 heads are the 16 rows of
// mma.sync, so nothing is padded, and keys and values are read from the same place in shared
// memory, once straight and once transposed. Then each block gets the averages that all of them have
// of some columns, through the L2, and merges them: one launch, no barrier of a grid or a cluster.
// While rows are on their way, the warps that compute go through their code once, for nothing: on a
// cold cache the instructions are as far away as the rows.
//
// Bound. The gather: 2.36 MB a query token in pieces of 1024 and 128 bytes.
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "launch.cuh"
#include "problem.cuh"

namespace dsa {
namespace {

using tvm::ffi::TensorView;

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

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorName(status) << ", "
                                << cudaGetErrorString(status);
  }
}

int processors_of(int device) {
  static std::mutex mutex;
  static std::map<int, int> known;
  const std::lock_guard<std::mutex> lock(mutex);
  int& count = known[device];
  if (count == 0) {
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
               "number of multiprocessors");
  }
  return count;
}

/// Scratch memory of a stream, in which every bit is set between calls.
void* scratch_of(int device, cudaStream_t stream, size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, cudaStream_t>, void*> known;
  const std::lock_guard<std::mutex> lock(mutex);
  void*& data = known[{device, stream}];
  if (data == nullptr) {
    void* fresh = nullptr;
    check_cuda(cudaMalloc(&fresh, bytes), "cudaMalloc of scratch memory");
    check_cuda(cudaMemsetAsync(fresh, 0xff, bytes, stream), "cudaMemset of scratch memory");
    data = fresh;
  }
  return data;
}

void run(TensorView q_nope, TensorView q_pe, TensorView ckv_cache, TensorView kpe_cache,
         TensorView sparse_indices, double sm_scale, TensorView output, TensorView lse) {
  const int64_t tokens = q_nope.size(0);
  const int64_t pages = ckv_cache.size(0);
  TVM_FFI_CHECK(pages <= std::numeric_limits<int32_t>::max() / kPageSize, ValueError)
      << "too many pages";
  Problem problem{};
  problem.q_nope = bf16_of<const __nv_bfloat16>(q_nope, "q_nope", {tokens, kHeads, kLatent});
  problem.q_pe = bf16_of<const __nv_bfloat16>(q_pe, "q_pe", {tokens, kHeads, kRope});
  problem.ckv =
      bf16_of<const __nv_bfloat16>(ckv_cache, "ckv_cache", {pages, kPageSize, kLatent});
  problem.kpe = bf16_of<const __nv_bfloat16>(kpe_cache, "kpe_cache", {pages, kPageSize, kRope});
  problem.selected =
      data_of<const int32_t>(sparse_indices, "sparse_indices", {tokens, kPlaces}, kDLInt, 32);
  problem.output = bf16_of<__nv_bfloat16>(output, "output", {tokens, kHeads, kLatent});
  problem.lse = data_of<float>(lse, "lse", {tokens, kHeads}, kDLFloat, 32);
  problem.factor = static_cast<float>(sm_scale * 1.4426950408889634);  // log2(e)
  problem.tokens = tokens;
  if (tokens == 0) return;

  const DLDevice device = q_nope.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const int processors = processors_of(device.device_id);
  void* const scratch = scratch_of(device.device_id, stream, scratch_bytes(processors));
  check_cuda(launch(problem, scratch, processors, stream), "launch of the attention");
}

}  // namespace
}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, dsa::run);
