// The loader: one warp that copies q, k and v of the chunks to shared memory, some chunks ahead.
#pragma once

#include "stage.cuh"

namespace gdn::fused {

template <class ShapeT>
class LoadSide {
  static constexpr int kSpread = ShapeT::kTiles * 2;  // lanes for the pieces of a row of v
  static constexpr int kStep = 32 / kSpread;          // rows of v that the warp copies at once

 public:
  __device__ __forceinline__ LoadSide(const Problem& p, const Item& item, Shared<ShapeT>& shared)
      : item_(item), shared_(shared), lane_(threadIdx.x % 32) {
    const unsigned row = item.begin + lane_ / 16;
    const unsigned qk_at = item.head / (kHeads / kQkHeads) * kWidth + lane_ % 16 * 8;
    k_ = p.k + size_t(row) * (kQkHeads * kWidth) + qk_at;
    q_ = p.q + size_t(row) * (kQkHeads * kWidth) + qk_at;
    const unsigned v_row = item.begin + lane_ / kSpread;
    v_ = p.v + size_t(v_row) * (kHeads * kWidth) +
         (item.head * kWidth + item.first_row + lane_ % kSpread * 8);
  }

  /// The first copies need no barrier, and go out before there is one.
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int chunk = 0; chunk < max(item_.chunks, 1); ++chunk) {
      const int index = chunk % ShapeT::kStages;
      const int last_use = chunk / ShapeT::kStages - 1;
      if (last_use >= 0) await(shared_.barriers[index].used, last_use);
      load(shared_.stage[index], item_.length - chunk * kChunk);
      if (chunk == 0) await_barriers<ShapeT, Role::kLoad>();
      barrier_arrive_after_copies(shared_address(&shared_.barriers[index].loaded));
    }
  }

 private:
  /// Starts the copies of a chunk with so many tokens left; those beyond the end are zeros.
  __device__ __forceinline__ void load(Stage<ShapeT>& stage, int left) {
    const uint32_t row_at = lane_ / 16 * kPitch + lane_ % 16 * 16;
    copy_rows(shared_address(stage.k) + row_at, k_, left);
    const int row = lane_ / kSpread;
    const uint32_t target =
        shared_address(stage.v) + row * ShapeT::kValuePitch + lane_ % kSpread * 16;
#pragma unroll
    for (int i = 0; i < kChunk; i += kStep) {
      copy_async(target + i * ShapeT::kValuePitch, v_ + i * (kHeads * kWidth), row + i < left);
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
      copy_async(target + i * kPitch, source + i * (kQkHeads * kWidth), lane_ / 16 + i < left);
    }
  }

  const Item& item_;
  Shared<ShapeT>& shared_;
  const int lane_;
  const __nv_bfloat16* k_;  // this lane's first piece of the next chunk
  const __nv_bfloat16* q_;
  const __nv_bfloat16* v_;
};

}  // namespace gdn::fused
