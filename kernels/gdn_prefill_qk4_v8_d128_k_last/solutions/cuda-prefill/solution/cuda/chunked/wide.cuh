// Second kernel on Hopper: the state and the output, chunk after chunk, in products of warpgroups.
#pragma once

#include "ptx.cuh"
#include "record.cuh"
#include "schedule.cuh"
#include "shapes.cuh"
#include "tiles.cuh"
#include "wgmma.cuh"

namespace gdn::chunked {

/// Blocks of 64 columns of V: a warpgroup has the state, a second one computes the output, and a
/// thread of a third one starts copies. Where it is joint, other blocks of the same kernel prepare
/// the chunks.
template <int kStagesT, bool kJointT = false>
struct Wide {
  static constexpr bool kJoint = kJointT;
  static constexpr int kStages = kStagesT;
  static constexpr int kColumns = 64;
  static constexpr int kSplits = kWidth / kColumns;
  static constexpr int kBlocks = 1;
  static constexpr int kTeams = kJoint ? 4 : 0;  // of four warps, where a block prepares chunks
  static constexpr int kThreads = kJoint ? kTeams * 128 : 384;
  static constexpr int kWorkers = 8;  // warps that are done with a stage one by one

  static constexpr int kHalfBytes = kChunk * 128;  // 64 tokens, 64 columns
  static constexpr int kQ = 2 * kHalfBytes;        // offsets in a stage; k is at 0
  static constexpr int kV = 4 * kHalfBytes;
  static constexpr int kRecord = kV + kHalfBytes;
  static constexpr int kNote = kRecord + static_cast<int>(sizeof(TileRecord));
  static constexpr int kStageBytes = (kNote + 16 + 1023) / 1024 * 1024;
  static constexpr int kCopied = kNote;  // bytes of copies a stage
  // A state has a stage of its own on its way in, and the stage of the last chunk on its way out:
  // 32 columns each in the places of k, of v and of what solves for u, that nobody else reads.
  static constexpr int kQuarterBytes = kHalfBytes;
  __host__ __device__ static constexpr int quarter(int i) {
    return i < 2 ? i * kQuarterBytes : kV + (i - 2) * kHalfBytes;
  }

  // S and u as second factors, and the output after u.
  static constexpr int kState = kStages * kStageBytes;
  static constexpr int kUpdate = kState + 2 * kHalfBytes;
  static constexpr int kBarriers = kUpdate + kHalfBytes;
  static constexpr int kSharedBytes = kBarriers + (kStages * 2 + 4) * 8 + 1024;  // and to align it
  static_assert(kSharedBytes + 2048 <= 232448 && kRecord == kV + kHalfBytes);
};

/// Shared memory of a block as addresses.
template <class W>
struct WideMemory {
  uint32_t base;

  __device__ uint32_t stage(int i) const { return base + i * W::kStageBytes; }
  __device__ uint32_t state() const { return base + W::kState; }
  __device__ uint32_t update() const { return base + W::kUpdate; }
  __device__ uint32_t full(int i) const { return base + W::kBarriers + i * 8; }
  __device__ uint32_t empty(int i) const { return full(W::kStages + i); }
  /// The state, and after it the update, is there for the second warpgroup; has been read by it.
  __device__ uint32_t state_there() const { return full(2 * W::kStages); }
  __device__ uint32_t update_there() const { return full(2 * W::kStages + 1); }
  __device__ uint32_t state_read() const { return full(2 * W::kStages + 2); }
  __device__ uint32_t update_read() const { return full(2 * W::kStages + 3); }
};

/// Copies q, k and v of a chunk. Tokens of the next sequence may come along: they neither write nor
/// are written out.
template <class W>
__device__ __forceinline__ void copy_rows(const WideParams& p, const Task& task, int chunk,
                                          uint32_t stage, uint32_t full) {
  const int row = task.begin + chunk * kChunk;
  const int key_column = task.head() / (kHeads / kQkHeads) * kWidth;
  const int column = task.head() * kWidth + task.column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    copy_box(stage + half * W::kHalfBytes, p.maps.k, key_column + 64 * half, row, full);
    copy_box(stage + W::kQ + half * W::kHalfBytes, p.maps.q, key_column + 64 * half, row, full);
  }
  copy_box(stage + W::kV, p.maps.v, column, row, full);
}

template <class W>
__device__ __forceinline__ void copy_record(const WideParams& p, const Task& task, int chunk,
                                            uint32_t stage, uint32_t full) {
  const int64_t slot = slot_of(task.begin, task.lane / kHeads) + chunk;
  if constexpr (W::kJoint) {
    flag_take(p.flags + slot * kHeads + task.head());
  }
  const char* source = p.workspace + (slot * kHeads + task.head()) * sizeof(TileRecord);
  copy_bulk(stage + W::kRecord, source, sizeof(TileRecord), full);
}

/// Copies the state before a sequence.
template <class W>
__device__ __forceinline__ void copy_state(const WideParams& p, const Task& task, uint32_t stage,
                                           uint32_t full) {
  const int row = task.lane * kWidth + task.column;
#pragma unroll
  for (int i = 0; i < 4; ++i) copy_box(stage + W::quarter(i), p.maps.state, i * 32, row, full);
}

/// The thread that starts all copies, ahead of the products, also from one task to the next.
template <class W>
__device__ __forceinline__ void run_copies(const WideParams& p, const Schedule<W>& schedule,
                                           WideMemory<W> memory) {
  Turn<W> turn;
  bool waited = false;
#pragma unroll 1
  for (int index = schedule.first(); index < schedule.tasks; index = schedule.after(index)) {
    const Task task = schedule.task(p, index);
    Note note{task.begin, task.tokens, 0, task.lane * W::kSplits + task.column / W::kColumns};
    const int chunks = task.chunks();
    if (p.state != nullptr && task.tokens > 0) note.chunk = -1;  // stands for the state
#pragma unroll 1
    for (; note.chunk < chunks; ++note.chunk) {
      const uint32_t stage = memory.stage(turn.stage);
      const uint32_t full = memory.full(turn.stage);
      barrier_wait(memory.empty(turn.stage), turn.parity ^ 1);
      store_shared(stage + W::kNote,
                   make_uint4(note.begin, note.tokens, note.chunk, note.place));
      if (task.tokens == 0) {
        barrier_arrive(full);
      } else if (note.chunk < 0) {
        barrier_expect(full, 4 * W::kQuarterBytes);
        copy_state<W>(p, task, stage, full);
      } else {
        barrier_expect(full, W::kCopied);
        copy_rows<W>(p, task, note.chunk, stage, full);
        if (!waited) {
          wait_for_previous_kernel();  // only the record comes from there
          waited = true;
        }
        copy_record<W>(p, task, note.chunk, stage, full);
      }
      turn = turn.next();
    }
  }
  barrier_wait(memory.empty(turn.stage), turn.parity ^ 1);
  store_shared(memory.stage(turn.stage) + W::kNote, make_uint4(0, ~0u, 0, 0));
  barrier_arrive(memory.full(turn.stage));
}

__device__ __forceinline__ Note same_note(const Note& note) {
  return {uniform(note.begin), uniform(note.tokens), uniform(note.chunk), uniform(note.place)};
}

/// Two floats for tokens 8 n + 2 t and the next, of 64.
__device__ __forceinline__ float2 for_tokens(uint32_t factors, int n) {
  return load_shared_pair(factors + n * 32);
}

/// Where a lane has columns 8 n .. of the state in shared memory; `row` is its upper one.
template <class W>
__device__ __forceinline__ uint32_t state_at(uint32_t stage, int row, int n, int lane) {
  return stage + W::quarter(n / 4) + swizzled(row, n % 4 * 2 + lane % 4 / 2) + lane % 2 * 8;
}

template <class W>
__device__ __forceinline__ void load_state(float (&s)[64], uint32_t stage, int row, int lane) {
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const uint32_t at = state_at<W>(stage, row, n, lane);
    const float2 upper = load_shared_pair(at);
    const float2 below = load_shared_pair(at + 8 * 128);
    s[4 * n] = upper.x;
    s[4 * n + 1] = upper.y;
    s[4 * n + 2] = below.x;
    s[4 * n + 3] = below.y;
  }
}

template <class W>
__device__ __forceinline__ void store_state(uint32_t stage, const float (&s)[64], int row,
                                            int lane) {
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const uint32_t at = state_at<W>(stage, row, n, lane);
    store_shared_pair(at, s[4 * n], s[4 * n + 1]);
    store_shared_pair(at + 8 * 128, s[4 * n + 2], s[4 * n + 3]);
  }
}

/// 16 columns of accumulators as a first factor.
template <int kAll>
__device__ __forceinline__ void round_columns(uint32_t (&a)[4], const float (&c)[kAll], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = pack_bf16(c[8 * step + 2 * i], c[8 * step + 2 * i + 1]);
  }
}

/// Whether the state after a chunk is to be read out with 16 bits: in two parts, one after the other.
__device__ __forceinline__ bool sharp_after(uint32_t record) {
  const uint32_t left = record + offsetof(TileRecord, left);
  return uniform(load_shared_float(left + (kChunk - kLastTokens - 1) * 4) < kSharpDecay) != 0;
}

/// A warpgroup with 64 columns of V of the state.
///
/// No products are under way where the loop starts over: the compiler would serialize them all (it
/// says so). What is not needed for the next state is done while products run.
template <class W>
__device__ __forceinline__ void run_chain_group(const WideParams& p, WideMemory<W> memory, int warp, int lane) {
  const int own_row = 16 * warp + lane / 4;  // of the state, and the eighth below
  const int v_offset = swizzled(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
  const int factor_row = 16 * warp + lane % 16;  // for what is handed over, with lane / 16
  Turn<W> turn;
  uint32_t states = 0;   // parities of how many have been handed over
  uint32_t updates = 0;
  int leaving = -1;     // the stage that a state is being copied from
  const auto left_stage = [&] {
    if (leaving >= 0 && warp == 0) {
      if (lane == 0) stores_read();
      warp_arrive(memory.empty(leaving), lane);
    }
    leaving = -1;
  };
  for (;;) {
    barrier_wait(memory.full(turn.stage), turn.parity);
    const Note note = same_note(load_note(memory.stage(turn.stage) + W::kNote));
    if (note.end()) break;
    if (note.tokens == 0) {
      left_stage();
      float4* target = reinterpret_cast<float4*>(p.new_state + note.state_at(W::kColumns) +
                                                 16 * warp * kWidth);
#pragma unroll 1
      for (int i = lane; i < 16 * kWidth / 4; i += 32) target[i] = make_float4(0, 0, 0, 0);
      warp_arrive(memory.empty(turn.stage), lane);
      turn = turn.next();
      continue;
    }
    float s[64];
    if (note.chunk < 0) {
      load_state<W>(s, memory.stage(turn.stage), own_row, lane);
      warp_arrive(memory.empty(turn.stage), lane);
      turn = turn.next();
      barrier_wait(memory.full(turn.stage), turn.parity);
    } else {
#pragma unroll
      for (int i = 0; i < 64; ++i) s[i] = 0.0f;
    }
    left_stage();
    float z[32];      // S k^T, then v - decay S k^T
    float v[32];
    float2 decay[8];  // of tokens 8 n + 2 t and the next
    // Starts S k^T for the chunk of a stage; the output takes S as well, unless it has been there.
    bool sharp = false;  // the state, after the chunk before
    const auto start = [&](uint32_t stage, bool hand_over) {
      uint32_t rounded[8][4];
#pragma unroll
      for (int step = 0; step < 8; ++step) round_columns(rounded[step], s, step);
      const uint64_t k_rows = rows_at(stage);
      products_begin();
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        multiply_64(z, rounded[step], moved(k_rows, step / 4 * W::kHalfBytes + step % 4 * 32),
                    step > 0);
      }
      products_commit();
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t words[4];
        load_matrices_transposed(words, stage + W::kV + v_offset + pair * 16 * 128);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          v[8 * pair + 2 * i] = low_bf16(words[i]);
          v[8 * pair + 2 * i + 1] = high_bf16(words[i]);
        }
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        decay[n] = for_tokens(
            stage + W::kRecord + offsetof(TileRecord, decay) + lane % 4 * 8, n);
      }
      const auto hand = [&] {
        barrier_wait(memory.state_read(), states ^ 1);
#pragma unroll
        for (int step = 0; step < 8; ++step) {
          store_matrices(memory.state() + step / 4 * W::kHalfBytes +
                             swizzled(factor_row, step % 4 * 2 + lane / 16),
                         rounded[step]);
        }
        order_before_async();
        warp_arrive(memory.state_there(), lane);
        states ^= 1;
      };
      if (hand_over) hand();
      products_wait<0>();
      results_ready(z);
      if (hand_over && sharp) {
#pragma unroll
        for (int step = 0; step < 8; ++step) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* x = s + 8 * step + 2 * i;
            uint32_t& word = rounded[step][i];
            word = pack_bf16(x[0] - low_bf16(word), x[1] - high_bf16(word));
          }
        }
        hand();
      }
    };
    start(memory.stage(turn.stage), true);
#pragma unroll 1
    for (int rest = note.tokens; rest > 0; rest -= kChunk) {
      const uint32_t stage = memory.stage(turn.stage);
      const uint32_t record = stage + W::kRecord;
      uint32_t x[4][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 4 * n + 2 * r;
          z[i] = fmaf(-decay[n].x, z[i], v[i]);
          z[i + 1] = fmaf(-decay[n].y, z[i + 1], v[i + 1]);
          x[n / 2][n % 2 * 2 + r] = pack_bf16(z[i], z[i + 1]);
        }
      }
      float u[32];  // without the diagonal of what solves for it
      const uint64_t solve = rows_at(record + offsetof(TileRecord, solve));
      products_begin();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        multiply_64(u, x[step], moved(solve, step * 32), step > 0);
      }
      products_commit();
      float2 left[8];
      float own[32];  // what the diagonal gives to the state
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        left[n] = for_tokens(record + offsetof(TileRecord, left) + lane % 4 * 8, n);
        const float2 beta =
            for_tokens(record + offsetof(TileRecord, strength) + lane % 4 * 8, n);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 4 * n + 2 * r;
          z[i] *= beta.x;
          z[i + 1] *= beta.y;
          own[i] = left[n].x * z[i];
          own[i + 1] = left[n].y * z[i + 1];
        }
      }
      const float chunk_decay =
          load_shared_float(record + offsetof(TileRecord, decay) + (kChunk - 1) * 4);
#pragma unroll
      for (int i = 0; i < 64; ++i) s[i] *= chunk_decay;
      products_wait<0>();
      results_ready(u);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 4 * n + 2 * r;
          x[n / 2][n % 2 * 2 + r] = pack_bf16(fmaf(left[n].x, u[i], own[i]),
                                              fmaf(left[n].y, u[i + 1], own[i + 1]));
        }
      }
      const uint64_t k_columns = columns_at(stage, W::kHalfBytes);
      products_begin();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        multiply_128(s, x[step], moved(k_columns, step * 2 * kAtomBytes), 1);
      }
      products_commit();
#pragma unroll
      for (int i = 0; i < 32; ++i) u[i] += z[i];
      barrier_wait(memory.update_read(), updates ^ 1);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint32_t words[4];
        round_columns(words, u, step);
        store_matrices(memory.update() + swizzled(factor_row, step * 2 + lane / 16), words);
      }
      order_before_async();
      warp_arrive(memory.update_there(), lane);
      updates ^= 1;
      sharp = sharp_after(record);
      const Turn<W> next = turn.next();
      const bool last = rest <= kChunk;
      if (!last) barrier_wait(memory.full(next.stage), next.parity);
      products_wait<0>();
      results_ready(s);
      if (!last) warp_arrive(memory.empty(turn.stage), lane);
      // After the last chunk this is of no use, but the compiler would not have a branch here.
      start(last ? stage : memory.stage(next.stage), !last);
      if (!last) turn = next;
    }
    // The stage of the last chunk takes the state, when no warp multiplies from it any more.
    warps_meet(1, 128);
    const uint32_t stage = memory.stage(turn.stage);
    store_state<W>(stage, s, own_row, lane);
    order_before_async();
    warps_meet(2, 128);
    if (warp == 0 && lane == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_box(p.maps.new_state, i * 32, note.place * W::kColumns, stage + W::quarter(i));
      }
    }
    leaving = turn.stage;
    if (warp != 0) warp_arrive(memory.empty(turn.stage), lane);
    turn = turn.next();
  }
  left_stage();
}

/// The warpgroup that reads states out; accumulators are tokens x V.
template <class W>
__device__ __forceinline__ void run_output_group(const WideParams& p, WideMemory<W> memory, int warp,
                                                 int lane) {
  Turn<W> turn;
  uint32_t states = 0;  // parities of how many have been read
  uint32_t updates = 0;
  bool sharp = false;
  for (;;) {
    barrier_wait(memory.full(turn.stage), turn.parity);
    const uint32_t stage = memory.stage(turn.stage);
    const uint32_t record = stage + W::kRecord;
    const Note note = same_note(load_note(stage + W::kNote));
    if (note.end()) break;
    if (note.tokens == 0 || note.chunk < 0) {
      warp_arrive(memory.empty(turn.stage), lane);
      turn = turn.next();
      continue;
    }
    const uint32_t decay = record + offsetof(TileRecord, decay) + (16 * warp + lane / 4) * 4;
    const float upper = p.scale * load_shared_float(decay);
    const float below = p.scale * load_shared_float(decay + 32);
    float o[32];
    const auto read = [&](bool add) {
      barrier_wait(memory.state_there(), states);
      products_begin();
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        const int offset = step / 4 * W::kHalfBytes + step % 4 * 32;
        multiply_shared_64(o, moved(rows_at(stage + W::kQ), offset),
                           moved(rows_at(memory.state()), offset), add || step > 0);
      }
      products_commit();
      products_wait<0>();
      results_ready(o);
      warp_arrive(memory.state_read(), lane);
      states ^= 1;
    };
    read(false);
    if (sharp && note.chunk > 0) read(true);
    sharp = sharp_after(record);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      o[4 * n] *= upper;
      o[4 * n + 1] *= upper;
      o[4 * n + 2] *= below;
      o[4 * n + 3] *= below;
    }
    barrier_wait(memory.update_there(), updates);
    products_begin();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t attend = record + offsetof(TileRecord, attend) +
                              i / 4 * TileRecord::kMatrixBytes;
      multiply_shared_64(o, moved(rows_at(attend), i % 4 * 32),
                         moved(rows_at(memory.update()), i % 4 * 32), 1);
    }
    products_commit();
    products_wait<0>();
    results_ready(o);
    // The output takes the place of u, when all have multiplied with that.
    warps_meet(3, 128);
    warp_arrive(memory.empty(turn.stage), lane);
    const uint32_t tile = memory.update();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t words[4];
      round_columns(words, o, step);
      store_matrices(tile + swizzled(16 * warp + lane % 16, 2 * step + lane / 16), words);
    }
    __syncwarp();
    uint4 rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = load_shared(tile + swizzled(16 * warp + 4 * i + lane / 8, lane % 8));
    }
    warp_arrive(memory.update_read(), lane);
    __nv_bfloat16* target = p.output + note.output_at(W::kColumns) + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + 4 * i + lane / 8;
      if (row < note.rest()) {
        *reinterpret_cast<uint4*>(target + row * (kHeads * kWidth)) = rows[i];
      }
    }
    updates ^= 1;
    turn = turn.next();
  }
}

/// Blocks from number `first_block` on take (sequence, value head, kColumns of V), one after the
/// other.
template <class W>
__device__ __forceinline__ void run_wide(const WideParams& p, const char* shared, int first_block) {
  __shared__ unsigned short order[kMostSorted];
  const WideMemory<W> memory{(shared_address(shared) + 1023) & ~1023u};
  const int lane = threadIdx.x % 32;
  const int warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    for (int i = 0; i < W::kStages; ++i) {
      barrier_init(memory.full(i), 1);
      barrier_init(memory.empty(i), W::kWorkers);
    }
    for (int i = 0; i < 4; ++i) barrier_init(memory.full(2 * W::kStages + i), 4);
    barriers_visible();
  }
  const Schedule<W> schedule(p, order, first_block);
  __syncthreads();
  if (warp < 4) {
    take_registers<240>();
    run_chain_group<W>(p, memory, warp, lane);
  } else if (warp < W::kWorkers) {
    if constexpr (!W::kJoint) drop_registers<152>();
    run_output_group<W>(p, memory, warp - 4, lane);
  } else {
    drop_registers<40>();
    if (warp == W::kWorkers && lane == 0) run_copies<W>(p, schedule, memory);
  }
}

template <class W>
__global__ void __launch_bounds__(W::kThreads, 1)
    wide_chain(const __grid_constant__ WideParams p) {
#if GDN_WARPGROUPS
  extern __shared__ __align__(128) char shared[];
  run_wide<W>(p, shared, 0);
#endif
}

}  // namespace gdn::chunked
