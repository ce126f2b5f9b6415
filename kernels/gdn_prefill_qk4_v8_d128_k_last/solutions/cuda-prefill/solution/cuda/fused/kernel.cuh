// The kernel: who does what. The idea is explained at the head of fused.cu.
#pragma once

#include "key_side.cuh"
#include "load_side.cuh"
#include "read_side.cuh"
#include "stage.cuh"
#include "value_side.cuh"

namespace gdn::fused {

/// One CTA: all tokens of one sequence, for some rows of the state of one head.
template <class ShapeT>
__global__ void __launch_bounds__(ShapeT::kWarps * 32, 1)
    prefill(const __grid_constant__ Problem p) {
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

  // Loads that need nothing else come before barriers are waited for.
  if (warp < ShapeT::kValueWarps) {
    ValueSide<ShapeT> values(p, shared, item, warp);
    values.load();
    item.set_tokens(begin, end);
    await_barriers<ShapeT, Role::kValue>();
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
    const int key_warp = warp - ShapeT::kFirstKey - (warp > ShapeT::kLoader ? 1 : 0);
    KeySide<ShapeT> keys(p, item, shared, key_warp);
    await_barriers<ShapeT, Role::kKey>();
    keys.run();
  } else {
    if (warp == ShapeT::kFirstRead) {
      if (threadIdx.x % 32 == 0) shared.init_barriers(p.tokens);
      announce_barriers<ShapeT>();
    } else {
      await_barriers<ShapeT, Role::kRead>();
    }
    item.set_tokens(begin, end);
    ReadSide<ShapeT>(p, item, shared, warp - ShapeT::kFirstRead).run();
  }
}

}  // namespace gdn::fused
