// The kernel: who does what. The idea is explained at the head of gdn_prefill.cu.
#pragma once

#include "key_side.cuh"
#include "load_side.cuh"
#include "problem.cuh"
#include "read_side.cuh"
#include "value_side.cuh"

namespace gdn {

/// Asks for this CTA's share of all q, k, v and gates to be in L2.
///
/// Where there are several sequences, which tokens a CTA needs is only known a trip to memory
/// later; all CTAs together need all of them.
__device__ __forceinline__ void prefetch_tokens(const Params& p) {
  const int rows = p.tokens;
  for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < rows * 16; i += gridDim.x * 32) {
    const int part = i / (rows * 4);  // of q, of k, of the halves of v
    const __nv_bfloat16* source = part == 0 ? p.q : part == 1 ? p.k : p.v;
    const int row = i - (part < 2 ? part : 2) * (rows * 4);
    prefetch(source + size_t(row) * kWidth, kWidth * 2);
    if (i < rows / 8) {
      prefetch(p.a + i * (8 * kHeads), 8 * kHeads * 2);
      prefetch(p.b + i * (8 * kHeads), 8 * kHeads * 2);
    }
  }
}

/// One CTA: all tokens of one sequence, for some rows of the state of one head.
template <class ShapeT>
__global__ void __launch_bounds__(ShapeT::kWarps * 32, 1)
    prefill(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared<ShapeT>& shared = *reinterpret_cast<Shared<ShapeT>*>(memory);

  const int warp = threadIdx.x / 32;
  Item item;
  item.first_row = blockIdx.x % ShapeT::kSlices * (ShapeT::kTiles * kRows);
  item.head = blockIdx.x / ShapeT::kSlices % kHeads;
  item.sequence = blockIdx.x / (ShapeT::kSlices * kHeads);
  int64_t begin = 0;
  int64_t end = p.tokens;
  if (p.sequences > 1) {
    begin = p.cu_seqlens[item.sequence];
    end = p.cu_seqlens[item.sequence + 1];
  }

  // Loads that need nothing else come before the barrier, which each role has once.
  if (warp < kValueWarps) {
    ValueSide<ShapeT> values(p, shared, item, warp);
    values.load();
    item.set_tokens(begin, end);
    __syncthreads();
    if (item.length == 0) {
      values.store_zeros();  // whatever the state was
      return;
    }
    values.run(item.chunks);
    values.store();
  } else if (warp == ShapeT::kLoader) {
    item.set_tokens(begin, end);
    LoadSide<ShapeT>(p, item, shared).run();
  } else if (warp >= ShapeT::kFirstKey) {
    item.set_tokens(begin, end);
    KeySide<ShapeT> keys(p, item, shared, warp - ShapeT::kFirstKey);
    __syncthreads();
    keys.run();
  } else {
    if (threadIdx.x == ShapeT::kFirstRead * 32) shared.init_barriers();
    if (KOPT_L2_PREFETCH > 0 && warp == ShapeT::kFirstRead + 1 && p.sequences > 1 &&
        p.tokens <= KOPT_L2_PREFETCH) {
      prefetch_tokens(p);
    }
    item.set_tokens(begin, end);
    __syncthreads();
    ReadSide<ShapeT>(p, item, shared, warp - ShapeT::kFirstRead).run();
  }
}

}  // namespace gdn
