// The loader: one warp that copies q, k and v of the chunks to shared memory, some chunks ahead.
#pragma once

#include "problem.cuh"

namespace gdn {

template <int ValueWarpsT, int KeyWarpsT>
class LoadSide {
  using SharedT = Shared<ValueWarpsT, KeyWarpsT>;
  using StageT = Stage<ValueWarpsT>;
  static constexpr int kPieces = ValueWarpsT * 2;  // 16 bytes each, of a row of v
  static constexpr int kStep = 32 / kPieces;       // rows of v that the warp copies at once

 public:
  __device__ __forceinline__ LoadSide(const Params& p, const Item& item, SharedT& shared)
      : item_(item), shared_(shared), lane_(threadIdx.x % 32) {
    const int qk_head = item.head / (kHeads / kQkHeads);
    const size_t row = item.begin + lane_ / 16;
    const size_t qk_at = (row * kQkHeads + qk_head) * kWidth + lane_ % 16 * 8;
    k_ = p.k + qk_at;
    q_ = p.q + qk_at;
    const size_t v_row = item.begin + lane_ / kPieces;
    v_ = p.v + (v_row * kHeads + item.head) * kWidth + item.first_row + lane_ % kPieces * 8;
  }

  /// The first copies need no barrier, and go out before those of the CTA are ready.
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int chunk = 0; chunk < max(item_.chunks, 1); ++chunk) {
      const int index = chunk % kStages;
      if (chunk >= kStages) await(shared_.barriers[index].used, chunk / kStages - 1);
      load(shared_.stage[index], item_.length - chunk * kChunk);
      if (chunk == 0) __syncthreads();
      copies_arrive(shared_address(&shared_.barriers[index].loaded));
    }
  }

 private:
  /// Starts the copies of a chunk with so many tokens left; those beyond the end are zeros.
  __device__ __forceinline__ void load(StageT& stage, int left) {
    const uint32_t row_at = lane_ / 16 * kPitch + lane_ % 16 * 16;
    copy_rows(shared_address(stage.k) + row_at, k_, left);
    const int row = lane_ / kPieces;
    const uint32_t target =
        shared_address(stage.v) + row * StageT::kValuePitch + lane_ % kPieces * 16;
#pragma unroll
    for (int i = 0; i < kChunk; i += kStep) {
      copy_16(target + i * StageT::kValuePitch, v_ + i * (kHeads * kWidth), row + i < left);
    }
    copy_rows(shared_address(stage.q) + row_at, q_, left);
    k_ += kChunk * kQkHeads * kWidth;
    q_ += kChunk * kQkHeads * kWidth;
    v_ += kChunk * kHeads * kWidth;
  }

  __device__ __forceinline__ void copy_rows(uint32_t target, const __nv_bfloat16* source,
                                            int left) const {
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
      copy_16(target + i * kPitch, source + i * (kQkHeads * kWidth), lane_ / 16 + i < left);
    }
  }

  const Item& item_;
  SharedT& shared_;
  const int lane_;
  const __nv_bfloat16* k_;  // this lane's first piece of the next chunk
  const __nv_bfloat16* q_;
  const __nv_bfloat16* v_;
};

}  // namespace gdn
