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

/// Warps of a CTA by what they do. A scheduler has every fourth warp; with one value warp, the
/// loader and no other shares its scheduler, for it has the least to do.
template <int ValueWarpsT, int KeyWarpsT>
struct Roles {
  static constexpr int kWarps = 2 * ValueWarpsT + KeyWarpsT + 1;
  static constexpr int kFirstKey = 2 * ValueWarpsT;  // after value and read warps
  static constexpr int kLoader = ValueWarpsT == 1 && kWarps > 5 ? 4 : kWarps - 1;
};

/// One CTA: all tokens of one sequence, for 16 * ValueWarpsT rows of the state of one head.
template <int ValueWarpsT, int KeyWarpsT>
__global__ void __launch_bounds__(Roles<ValueWarpsT, KeyWarpsT>::kWarps * 32, 1)
    prefill(const __grid_constant__ Params p) {
  using RolesT = Roles<ValueWarpsT, KeyWarpsT>;
  using SharedT = Shared<ValueWarpsT, KeyWarpsT>;
  extern __shared__ __align__(128) uint8_t memory[];
  SharedT& shared = *reinterpret_cast<SharedT*>(memory);
  constexpr int kSlices = kWidth / (ValueWarpsT * kRows);

  const int warp = threadIdx.x / 32;
  Item item;
  item.first_row = blockIdx.x % kSlices * (ValueWarpsT * kRows);
  item.head = blockIdx.x / kSlices % kHeads;
  item.sequence = blockIdx.x / (kSlices * kHeads);
  int64_t begin = 0;
  int64_t end = p.tokens;
  if (p.sequences > 1) {
    begin = p.cu_seqlens[item.sequence];
    end = p.cu_seqlens[item.sequence + 1];
  }

  // Loads that need nothing else come before the barrier, which each role has once.
  if (warp < ValueWarpsT) {
    ValueSide<ValueWarpsT, KeyWarpsT> values(p, shared, warp);
    values.load(item);
    item.set_tokens(begin, end);
    __syncthreads();
    if (item.length == 0) {
      values.store_zeros(item);  // whatever the state was
      return;
    }
    values.run(item);
    values.store(item);
  } else if (warp == RolesT::kLoader) {
    item.set_tokens(begin, end);
    LoadSide<ValueWarpsT, KeyWarpsT>(p, item, shared).run();
  } else if (warp >= RolesT::kFirstKey) {
    const int key_warp = warp - RolesT::kFirstKey - (warp > RolesT::kLoader ? 1 : 0);
    item.set_tokens(begin, end);
    KeySide<ValueWarpsT, KeyWarpsT> keys(p, item, shared, key_warp);
    __syncthreads();
    keys.run();
  } else {
    if (threadIdx.x == ValueWarpsT * 32) shared.init_barriers();
    if (KOPT_L2_PREFETCH > 0 && warp == ValueWarpsT && p.sequences > 1 &&
        p.tokens <= KOPT_L2_PREFETCH) {
      prefetch_tokens(p);
    }
    item.set_tokens(begin, end);
    __syncthreads();
    ReadSide<ValueWarpsT, KeyWarpsT>(p, item, shared, warp - ValueWarpsT).run();
  }
}

}  // namespace gdn
