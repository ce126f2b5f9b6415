// The kernel: who does what. The idea is explained at the head of gdn_prefill.cu.
#pragma once

#include "key_side.cuh"
#include "problem.cuh"
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

/// One CTA: all tokens of one sequence, for 16 * ValueWarpsT rows of the state of one head.
template <int ValueWarpsT, int KeyWarpsT>
__global__ void __launch_bounds__((ValueWarpsT + KeyWarpsT) * 32, 1)
    prefill(const __grid_constant__ Params p) {
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

  if (warp >= ValueWarpsT) {
    const int key_warp = warp - ValueWarpsT;
    if (key_warp == KeyWarpsT - 1) {
      if (threadIdx.x % 32 == 0) shared.init_barriers();
      if (KOPT_L2_PREFETCH > 0 && p.sequences > 1 && p.tokens <= KOPT_L2_PREFETCH) {
        prefetch_tokens(p);
      }
    }
    item.set_tokens(begin, end);
    KeySide<ValueWarpsT, KeyWarpsT>(p, item, shared, key_warp).run();
    return;
  }
  ValueSide<ValueWarpsT, KeyWarpsT> values(p, shared, warp);
  values.load(item);
  item.set_tokens(begin, end);
  __syncthreads();  // the other one is in KeySide::run
  if (item.length == 0) {
    values.store_zeros(item);  // whatever the state was
    return;
  }
  values.run(item);
  values.store(item);
}

}  // namespace gdn
