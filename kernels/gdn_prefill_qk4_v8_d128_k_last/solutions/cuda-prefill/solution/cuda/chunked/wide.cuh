// Second kernel on Hopper: the state and the output, chunk after chunk, in products of warpgroups.
#pragma once

#include "ptx.cuh"
#include "record.cuh"
#include "schedule.cuh"
#include "shapes.cuh"
#include "tiles.cuh"
#include "wgmma.cuh"

namespace gdn::chunked {

/// Blocks of 64 columns of V: a warpgroup has the state and computes the output, and a thread of
/// another warp starts copies. Where it is joint, other blocks of the same kernel prepare the chunks.
template <int kStagesT, bool kJointT = false>
struct Wide {
  static constexpr bool kJoint = kJointT;
  static constexpr int kStages = kStagesT;
  static constexpr int kColumns = 64;
  static constexpr int kSplits = kWidth / kColumns;
  static constexpr int kBlocks = 1;
  static constexpr int kTeams = kJoint ? 4 : 0;  // of four warps, where a block prepares chunks
  static constexpr int kWorkers = 4;             // warps that are done with a stage one by one
  static constexpr int kThreads = kJoint ? kTeams * 128 : (kWorkers + 1) * 32;

  static constexpr int kHalfBytes = kChunk * 128;  // 64 tokens, 64 columns
  static constexpr int kQ = 2 * kHalfBytes;        // offsets in a stage; k is at 0
  static constexpr int kV = 4 * kHalfBytes;
  static constexpr int kRecord = kV + kHalfBytes;
  static constexpr int kNote = kRecord + static_cast<int>(sizeof(TileRecord));
  static constexpr int kStageBytes = (kNote + 16 + 1023) / 1024 * 1024;
  static constexpr int kCopied = kNote;  // bytes of copies a stage
  // A state has a stage of its own on its way in, and the stage of the last chunk on its way out:
  // four times 32 columns, in the places of k and q.
  static constexpr int kQuarterBytes = kHalfBytes;

  static constexpr int kRows = kStages * kStageBytes;  // where rows of output are put together
  static constexpr int kBarriers = kRows + kHalfBytes;
  static constexpr int kSharedBytes = kBarriers + kStages * 16 + 1024;  // and to align it
  static_assert(kSharedBytes + 2048 <= 232448);
};

/// Shared memory of a block as addresses.
template <class W>
struct WideMemory {
  uint32_t base;

  __device__ uint32_t stage(int i) const { return base + i * W::kStageBytes; }
  __device__ uint32_t rows() const { return base + W::kRows; }
  __device__ uint32_t full(int i) const { return base + W::kBarriers + i * 8; }
  __device__ uint32_t empty(int i) const { return full(W::kStages + i); }
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
  for (int i = 0; i < 4; ++i) copy_box(stage + i * W::kQuarterBytes, p.maps.state, i * 32, row, full);
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
  return stage + n / 4 * W::kQuarterBytes + swizzled(row, n % 4 * 2 + lane % 4 / 2) + lane % 2 * 8;
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

/// Puts 64 x 16 of the output together as rows; accumulators are V x tokens.
__device__ __forceinline__ void turn_output(const float (&o)[32], uint32_t tile, int warp,
                                            int lane) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const float* x = o + 8 * pair;
    const uint32_t words[4] = {pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]),
                               pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7])};
    const int row = 16 * pair + lane / 16 * 8 + lane % 8;
    store_matrices_transposed(tile + swizzled(row, 2 * warp + lane / 8 % 2), words);
  }
}

__device__ __forceinline__ void write_output(uint32_t tile, __nv_bfloat16* target, int count,
                                             int warp, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 16 * i + lane / 2;
    const uint4 x = load_shared(tile + swizzled(row, 2 * warp + lane % 2));
    if (row < count) {
      *reinterpret_cast<uint4*>(target + row * (kHeads * kWidth) + lane % 2 * 8) = x;
    }
  }
}

/// Reads out what rounding took from the state. Nothing may be under way, and nothing is afterwards.
template <class W>
__device__ __forceinline__ void read_rest(float (&o)[32], const float (&s)[64],
                                          const uint32_t (&rounded)[8][4], uint64_t q_rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t rest[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t word = rounded[4 * half + step][i];
        const float* x = s + 8 * (4 * half + step) + 2 * i;
        rest[step][i] = pack_bf16(x[0] - low_bf16(word), x[1] - high_bf16(word));
      }
    }
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_64(o, rest[step], moved(q_rows, half * W::kHalfBytes + step * 32),
                  half > 0 || step > 0);
    }
    products_commit();
    products_wait<0>();
    results_ready(o);
  }
}

/// A warpgroup with 64 columns of V of the state.
///
/// The order of what a chunk takes: products run while registers are worked on that they do not
/// need. The compiler keeps them apart only if none is under way where a loop starts over, and
/// serializes all products otherwise (it says so).
template <class W>
__device__ __forceinline__ void run_products(const WideParams& p, WideMemory<W> memory, int warp,
                                             int lane) {
  const int own_column = 16 * warp;
  const int own_row = 16 * warp + lane / 4;  // of the state, and the eighth below
  const int v_row = lane % 8 + lane / 16 * 8;
  const int v_piece = 2 * warp + lane / 8 % 2;
  Turn<W> turn;
  int leaving = -1;  // the stage that a state is being copied from
  const auto left_stage = [&] {
    if (leaving >= 0 && warp == 0) {
      if (lane == 0) stores_read();
      warp_arrive(memory.empty(leaving), lane);
    }
    leaving = -1;
  };
  for (;;) {
    barrier_wait(memory.full(turn.stage), turn.parity);
    Note note = same_note(load_note(memory.stage(turn.stage) + W::kNote));
    if (note.end()) break;
    if (note.tokens == 0) {
      left_stage();
      float4* target = reinterpret_cast<float4*>(p.new_state + note.state_at(W::kColumns) +
                                                 own_column * kWidth);
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
      note.chunk = 0;
    } else {
#pragma unroll
      for (int i = 0; i < 64; ++i) s[i] = 0.0f;
    }
    uint32_t rounded[8][4];
#pragma unroll
    for (int step = 0; step < 8; ++step) round_columns(rounded[step], s, step);
    left_stage();
    bool sharp = false;  // the state, after the chunk before
    float z[32];         // S k^T, then u
    uint32_t x[4][4];    // v, then first factors
    const auto start = [&](uint32_t stage) {
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
        load_matrices_transposed(x[pair], stage + W::kV +
                                              swizzled(16 * pair + v_row, v_piece));
      }
    };
    start(memory.stage(turn.stage));
    products_wait<0>();
    results_ready(z);
    __nv_bfloat16* target = p.output + note.output_at(W::kColumns) + own_column;
#pragma unroll 1
    for (int rest = note.tokens; rest > 0; rest -= kChunk) {
      const uint32_t stage = memory.stage(turn.stage);
      const uint32_t record = stage + W::kRecord;
      const uint64_t q_rows = rows_at(stage + W::kQ);
      float o[32];
      if (sharp) read_rest<W>(o, s, rounded, q_rows);
      const uint32_t decay = record + offsetof(TileRecord, decay) + lane % 4 * 8;
      const uint32_t left = record + offsetof(TileRecord, left) + lane % 4 * 8;
      const uint32_t strength = record + offsetof(TileRecord, strength) + lane % 4 * 8;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 factor = for_tokens(decay, n);
        const float2 beta = for_tokens(strength, n);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          uint32_t& word = x[n / 2][n % 2 * 2 + r];
          float& x0 = z[4 * n + 2 * r];
          float& x1 = z[4 * n + 2 * r + 1];
          x0 = fmaf(-factor.x, x0, low_bf16(word));
          x1 = fmaf(-factor.y, x1, high_bf16(word));
          word = pack_bf16(x0, x1);
          x0 *= beta.x;
          x1 *= beta.y;
        }
      }
      const uint64_t solve = rows_at(record + offsetof(TileRecord, solve));
      products_begin();
#pragma unroll
      for (int step = 0; step < 4; ++step) multiply_64(z, x[step], moved(solve, step * 32), 1);
      products_commit();
      products_begin();
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        multiply_64(o, rounded[step], moved(q_rows, step / 4 * W::kHalfBytes + step % 4 * 32),
                    sharp || step > 0);
      }
      products_commit();
      const float chunk_decay =
          load_shared_float(record + offsetof(TileRecord, decay) + (kChunk - 1) * 4);
#pragma unroll
      for (int i = 0; i < 64; ++i) s[i] *= chunk_decay;
      products_wait<1>();
      results_ready(z);
      uint32_t u[4][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 factor = for_tokens(left, n);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 4 * n + 2 * r;
          x[n / 2][n % 2 * 2 + r] = pack_bf16(factor.x * z[i], factor.y * z[i + 1]);
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
      for (int step = 0; step < 4; ++step) round_columns(u[step], z, step);
      products_wait<1>();
      results_ready(o);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 factor = for_tokens(decay, n);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          o[4 * n + 2 * r] *= p.scale * factor.x;
          o[4 * n + 2 * r + 1] *= p.scale * factor.y;
        }
      }
      const uint64_t attend = rows_at(record + offsetof(TileRecord, attend));
      products_begin();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        multiply_64(o, u[i % 4], moved(attend, i / 4 * TileRecord::kMatrixBytes + i % 4 * 32), 1);
      }
      products_commit();
      sharp = sharp_after(record);
      const Turn<W> next = turn.next();
      const bool last = rest <= kChunk;
      if (!last) barrier_wait(memory.full(next.stage), next.parity);
      products_wait<1>();
      results_ready(s);
#pragma unroll
      for (int step = 0; step < 8; ++step) round_columns(rounded[step], s, step);
      // The next chunk's first product runs while this one's output is written. After the last
      // chunk it is of no use, but a branch around it would have the compiler wait for all.
      start(last ? stage : memory.stage(next.stage));
      products_wait<1>();
      results_ready(o);
      const uint32_t rows = memory.rows();
      turn_output(o, rows, warp, lane);
      __syncwarp();
      write_output(rows, target, rest, warp, lane);
      if (!last) warp_arrive(memory.empty(turn.stage), lane);
      target += kChunk * kHeads * kWidth;
      products_wait<0>();
      results_ready(z);
      if (!last) turn = next;
    }
    // The stage of the last chunk takes the state, when no warp multiplies from it any more.
    warps_meet(1, 128);
    const uint32_t tile = memory.stage(turn.stage);
    store_state<W>(tile, s, own_row, lane);
    order_before_async();
    warps_meet(2, 128);
    if (warp == 0 && lane == 0) {
      const int row = note.place * W::kColumns;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_box(p.maps.new_state, i * 32, row, tile + i * W::kQuarterBytes);
      }
    }
    leaving = turn.stage;
    if (warp != 0) warp_arrive(memory.empty(turn.stage), lane);
    turn = turn.next();
  }
  left_stage();
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
    barriers_visible();
  }
  const Schedule<W> schedule(p, order, first_block);
  __syncthreads();
  if (warp < W::kWorkers) {
    if constexpr (W::kJoint) take_registers<240>();
    run_products<W>(p, memory, warp, lane);
  } else {
    if constexpr (W::kJoint) drop_registers<40>();
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
