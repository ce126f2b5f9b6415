// Selection of the tokens that sparse attention reads.
//
// Target: sm_90a (H200); also builds for sm_100a (B200), with products of single warps.
// Shapes: q (B, 64, 128) e4m3; cache (pages, 64, 1, 132) bytes: of each page 64 x 128 e4m3 keys,
//   then 64 float32 scales; weights (B, 64) float32; seq_lens (B) and block_table (B, P) int32;
//   topk_indices (B, 2048) int32, token ids in any order, then -1.
//
// Idea. score = scale * sum over heads of weight * relu(q . k) is wanted in float32, exactly enough
// that only what float32 blurs may change places at the cut. e4m3 numbers are exact as halves, and
// products of halves with float32 sums are about as precise as float32, so scores come from
// half-precision tensor cores. A cluster shares the pages of a row; scores go straight from
// registers into the shared memory of one of its blocks, which selects and writes the row. All in
// one launch, nothing in global memory but inputs and output, no state between calls.
//
// Bound. Many long rows: reading 8448 bytes a page. One long row: latency of launch, lengths, block
// table, pages, exchange and selection, one after the other.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "launch.cuh"

namespace topk {
namespace {

using tvm::ffi::TensorView;

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorName(status) << ", "
                                << cudaGetErrorString(status);
  }
}

/// Address of the first element, after shape, element size, layout and device are what the kernels
/// assume.
template <typename T>
T* data_of(const TensorView& tensor, const char* name, std::initializer_list<int64_t> shape) {
  const DLDataType dtype = tensor.dtype();
  TVM_FFI_CHECK(dtype.bits == 8 * sizeof(T) && dtype.lanes == 1, TypeError)
      << name << " has another element type than the definition";
  bool same = tensor.ndim() == static_cast<int32_t>(shape.size());
  int64_t dim = 0;
  for (int64_t extent : shape) same = same && tensor.size(dim++) == extent;
  TVM_FFI_CHECK(same, ValueError) << name << " has another shape than the definition";
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << name << " must be contiguous";
  TVM_FFI_CHECK(tensor.device().device_type == kDLCUDA, ValueError) << name << " must be on a GPU";
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

/// Scratch memory of a stream: what a call writes there, only the same call reads.
void* workspace_of(int device, cudaStream_t stream, size_t bytes) {
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
    block.bytes = bytes;
  }
  return block.data;
}

void run(TensorView q, TensorView cache, TensorView weights, TensorView seq_lens,
         TensorView block_table, TensorView topk_indices) {
  TVM_FFI_CHECK(q.ndim() == 3 && cache.ndim() == 4 && block_table.ndim() == 2, ValueError)
      << "a tensor has another rank than the definition";
  const int64_t rows = q.size(0), width = block_table.size(1);
  TVM_FFI_CHECK(rows * width * kPage < std::numeric_limits<int>::max(), ValueError)
      << "a block table of " << rows << " x " << width << " pages is too large";
  if (rows == 0) return;

  Problem p;
  p.q = data_of<const uint8_t>(q, "q_index_fp8", {rows, kHeads, kDim});
  p.cache = data_of<const uint8_t>(cache, "k_index_cache_fp8", {cache.size(0), kPage, 1, kDim + 4});
  p.weights = data_of<const float>(weights, "weights", {rows, kHeads});
  p.lengths = data_of<const int>(seq_lens, "seq_lens", {rows});
  p.table = data_of<const int>(block_table, "block_table", {rows, width});
  p.selected = data_of<int>(topk_indices, "topk_indices", {rows, kSelected});
  p.rows = static_cast<int>(rows);
  p.width = static_cast<int>(width);

  const DLDevice where = q.device();
  const auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(where.device_type, where.device_id));
  if (width * kPage <= kSelected) {
    check_cuda(launch_list(p, stream), "list_rows");
    return;
  }
  Device device;
  check_cuda(device_of(&device), "properties of the device");
  if (in_one_launch(device, p.width)) {
    check_cuda(launch_one(p, device, stream), "index_rows");
    return;
  }
  const size_t bytes = static_cast<size_t>(rows * width) * kPage * sizeof(float);
  p.scores = static_cast<float*>(workspace_of(where.device_id, stream, bytes));
  check_cuda(launch_two(p, device, stream), "score_rows and select_rows");
}

}  // namespace
}  // namespace topk

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, topk::run);
