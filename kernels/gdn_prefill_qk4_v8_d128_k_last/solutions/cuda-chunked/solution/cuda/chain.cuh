// Second kernel: the state, chunk after chunk, and what it is read out for.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace gdn {

constexpr int kMostSorted = 256;  // sequences that are put in order of their length

/// Shapes of a block: kColumns of V, kTiles * 16 of them a warp.
template <int kColumnsT, int kTilesT, int kStagesT>
struct Shape {
  static constexpr int kColumns = kColumnsT;
  static constexpr int kTiles = kTilesT;
  static constexpr int kStages = kStagesT;
  static constexpr int kPairs = kColumns / (16 * kTiles);  // warps with state, and with output
  static constexpr int kLoaders = 2;                       // warps that load
  static constexpr int kThreads = (2 * kPairs + kLoaders) * 32;
  static constexpr int kSplits = kWidth / kColumns;

  static constexpr int kVRowBytes = 2 * kColumns + 16;
  static constexpr int kQ = kTileBytes;  // offsets in a stage; k is at 0
  static constexpr int kV = 2 * kTileBytes;
  static constexpr int kRecord = kV + kChunk * kVRowBytes;
  static constexpr int kStageBytes = kRecord + static_cast<int>(sizeof(Record));

  static constexpr int kStateBytes = kTiles * 8 * 32 * 16;  // handed over by one warp
  static constexpr int kOutRowBytes = 32 * kTiles + 16;
  static constexpr int kUpdateBytes = kChunk * kOutRowBytes;  // or kTiles * 4 * 32 * 16, smaller
  static constexpr int kPairBytes = kStateBytes + kUpdateBytes;
  static constexpr int kHandOver = kStages * kStageBytes;
  static constexpr int kBarriers = kHandOver + kPairs * kPairBytes;
  static constexpr int kSharedBytes = kBarriers + (2 * kStages + 4 * kPairs) * 8;
  static_assert(kUpdateBytes >= kTiles * 4 * 32 * 16 && kStageBytes % 16 == 0);
};

/// Shared memory of a block as addresses.
template <class S>
struct Memory {
  uint32_t base;

  __device__ uint32_t stage(int i) const { return base + i * S::kStageBytes; }
  __device__ uint32_t state(int pair) const { return base + S::kHandOver + pair * S::kPairBytes; }
  __device__ uint32_t update(int pair) const { return state(pair) + S::kStateBytes; }
  __device__ uint32_t barrier(int i) const { return base + S::kBarriers + i * 8; }
  __device__ uint32_t full(int i) const { return barrier(i); }
  __device__ uint32_t empty(int i) const { return barrier(S::kStages + i); }
  __device__ uint32_t state_full(int pair) const { return barrier(2 * S::kStages + pair); }
  __device__ uint32_t state_empty(int pair) const {
    return barrier(2 * S::kStages + S::kPairs + pair);
  }
  __device__ uint32_t update_full(int pair) const {
    return barrier(2 * S::kStages + 2 * S::kPairs + pair);
  }
  __device__ uint32_t update_empty(int pair) const {
    return barrier(2 * S::kStages + 3 * S::kPairs + pair);
  }
};

/// Where in the stages a chunk is.
template <class S>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == S::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

struct Task {
  int64_t begin;  // first token
  int tokens;
  int sequence;
  int head;
  int column;  // of V

  __device__ int chunks() const { return (tokens + kChunk - 1) / kChunk; }
};

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

__device__ __forceinline__ float load_shared_float(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

__device__ __forceinline__ void store_shared_word(uint32_t address, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

/// All lanes are done with what the barrier guards.
__device__ __forceinline__ void warp_arrive(uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) barrier_arrive(barrier);
}

/// Rows of q, k and v of one chunk; zeros where the sequence has ended.
template <class S>
__device__ __forceinline__ void load_rows(const Params& p, const Task& task, int chunk,
                                          uint32_t stage, int thread) {
  constexpr int kStep = S::kLoaders * 32;
  const int64_t first = task.begin + static_cast<int64_t>(chunk) * kChunk;
  const int count = task.tokens - chunk * kChunk;
  const int64_t qk_at = (first * kKeyHeads + task.head / (kHeads / kKeyHeads)) * kWidth;
#pragma unroll 4
  for (int i = 0; i < kChunk * 16 / kStep; ++i) {
    const int piece = i * kStep + thread;
    const int row = piece / 16;
    const bool valid = row < count;
    const int64_t source = qk_at + (valid ? row : 0) * (kKeyHeads * kWidth) + piece % 16 * 8;
    const uint32_t target = stage + row * kRowBytes + piece % 16 * 16;
    copy_async(target, p.k + source, valid);
    copy_async(target + S::kQ, p.q + source, valid);
  }
  constexpr int kPieces = S::kColumns / 8;
  const __nv_bfloat16* v = p.v + (first * kHeads + task.head) * kWidth + task.column;
#pragma unroll 4
  for (int i = 0; i < kChunk * kPieces / kStep; ++i) {
    const int piece = i * kStep + thread;
    const int row = piece / kPieces;
    const bool valid = row < count;
    copy_async(stage + S::kV + row * S::kVRowBytes + piece % kPieces * 16,
               v + (valid ? row : 0) * (kHeads * kWidth) + piece % kPieces * 8, valid);
  }
}

template <class S>
__device__ __forceinline__ void load_record(const Params& p, const Task& task, int chunk,
                                            uint32_t stage, int thread) {
  const int64_t slot = slot_of(task.begin, task.sequence) + chunk;
  const char* source = p.workspace + (slot * kHeads + task.head) * sizeof(Record);
#pragma unroll 4
  for (int piece = thread; piece < static_cast<int>(sizeof(Record) / 16);
       piece += S::kLoaders * 32) {
    copy_async(stage + S::kRecord + piece * 16, source + piece * 16, true);
  }
}

template <class S>
__device__ __forceinline__ void load_chunks(const Params& p, const Task& task, Memory<S> memory,
                                            int thread) {
  const int chunks = task.chunks();
  const int ahead = chunks < S::kStages ? chunks : S::kStages;
  for (int c = 0; c < ahead; ++c) load_rows<S>(p, task, c, memory.stage(c), thread);
  wait_for_previous_kernel();
  for (int c = 0; c < ahead; ++c) {
    load_record<S>(p, task, c, memory.stage(c), thread);
    barrier_arrive_after_copies(memory.full(c));
  }
  Turn<S> turn;
  for (int c = S::kStages; c < chunks; ++c) {
    barrier_wait(memory.empty(turn.stage), turn.parity);
    load_rows<S>(p, task, c, memory.stage(turn.stage), thread);
    load_record<S>(p, task, c, memory.stage(turn.stage), thread);
    barrier_arrive_after_copies(memory.full(turn.stage));
    turn.advance();
  }
}

/// Offsets of a lane's row in the four 8 x 8 matrices that one load fetches.
struct Lanes {
  uint32_t row_major;   // second matrix to the right, third below
  uint32_t transposed;  // second matrix below, third to the right
  uint32_t a_operand;   // the same order, with all 16 rows in a row
  uint32_t v_rows;

  __device__ Lanes(int lane, int v_row_bytes)
      : row_major((lane % 8 + lane / 16 * 8) * kRowBytes + lane / 8 % 2 * 16),
        transposed((lane % 8 + lane / 8 % 2 * 8) * kRowBytes + lane / 16 * 16),
        a_operand(lane % 16 * kRowBytes + lane / 16 * 16),
        v_rows((lane % 8 + lane / 16 * 8) * v_row_bytes + lane / 8 % 2 * 16) {}
};

/// The state of kTiles * 16 columns of V, transposed (V x K), as accumulators of one warp.
template <class S>
struct Chain {
  static constexpr int kTiles = S::kTiles;
  float s[kTiles][16][4];

  __device__ __forceinline__ void load(const float* source, int g, int t) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        float2 upper = make_float2(0.0f, 0.0f);
        float2 below = upper;
        if (source != nullptr) {
          const float* at = source + (16 * m + g) * kWidth + 8 * n + 2 * t;
          upper = *reinterpret_cast<const float2*>(at);
          below = *reinterpret_cast<const float2*>(at + 8 * kWidth);
        }
        s[m][n][0] = upper.x;
        s[m][n][1] = upper.y;
        s[m][n][2] = below.x;
        s[m][n][3] = below.y;
      }
    }
  }

  __device__ __forceinline__ void store(float* target, int g, int t) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        float* at = target + (16 * m + g) * kWidth + 8 * n + 2 * t;
        *reinterpret_cast<float2*>(at) = make_float2(s[m][n][0], s[m][n][1]);
        *reinterpret_cast<float2*>(at + 8 * kWidth) = make_float2(s[m][n][2], s[m][n][3]);
      }
    }
  }

  /// x = S k^T (V x tokens); what S is rounded to is handed over on the way.
  __device__ __forceinline__ void read(float (&x)[kTiles][8][4], uint32_t k_tile,
                                       uint32_t hand_over, const Lanes& lanes, int lane) const {
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float(&left)[4] = s[m][2 * step];
        const float(&right)[4] = s[m][2 * step + 1];
        a[m][0] = pack_bf16(left[0], left[1]);
        a[m][1] = pack_bf16(left[2], left[3]);
        a[m][2] = pack_bf16(right[0], right[1]);
        a[m][3] = pack_bf16(right[2], right[3]);
        store_shared(hand_over + ((m * 8 + step) * 32 + lane) * 16,
                     make_uint4(a[m][0], a[m][1], a[m][2], a[m][3]));
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t b[4];
        load_matrices(b, k_tile + lanes.row_major + pair * 16 * kRowBytes + step * 32);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma_bf16(x[m][2 * pair], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
          mma_bf16(x[m][2 * pair + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
        }
      }
    }
  }

  /// x = v - decay x, rounded, as A operands.
  __device__ __forceinline__ void subtract(uint32_t (&a)[kTiles][4][4],
                                           const float (&x)[kTiles][8][4], uint32_t v_tile,
                                           uint32_t decay, const Lanes& lanes, int t) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 first = load_shared_pair(decay + (16 * pair + 2 * t) * 4);
      const float2 second = load_shared_pair(decay + (16 * pair + 8 + 2 * t) * 4);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        uint32_t v[4];
        load_matrices_transposed(v, v_tile + lanes.v_rows + pair * 16 * S::kVRowBytes + m * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 factor = i < 2 ? first : second;
          const float(&tile)[4] = x[m][2 * pair + i / 2];
          a[m][pair][i] = pack_bf16(fmaf(-factor.x, tile[i % 2 * 2], low_bf16(v[i])),
                                    fmaf(-factor.y, tile[i % 2 * 2 + 1], high_bf16(v[i])));
        }
      }
    }
  }

  /// S = decay of the chunk * S + u k, with u (V x tokens) as A operands.
  __device__ __forceinline__ void write(const uint32_t (&u)[kTiles][4][4], float chunk_decay,
                                        uint32_t k_tile, const Lanes& lanes) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] *= chunk_decay;
      }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int pair = 0; pair < 8; ++pair) {
        uint32_t b[4];
        load_matrices_transposed(b, k_tile + lanes.transposed + step * 16 * kRowBytes + pair * 32);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint32_t(&a)[4] = u[m][step];
          mma_bf16(s[m][2 * pair], a[0], a[1], a[2], a[3], b[0], b[1]);
          mma_bf16(s[m][2 * pair + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
    }
  }
};

/// A warp that has the state.
template <class S>
__device__ __forceinline__ void run_chain(const Params& p, const Task& task, Memory<S> memory,
                                          int pair_index, int lane) {
  constexpr int kTiles = S::kTiles;
  const int g = lane / 4;
  const int t = lane % 4;
  const Lanes lanes(lane, S::kVRowBytes);
  const int column = task.column + pair_index * 16 * kTiles;
  const int64_t state_at =
      (static_cast<int64_t>(task.sequence) * kHeads + task.head) * kStateSize + column * kWidth;
  Chain<S> chain;
  chain.load(p.state == nullptr || task.tokens == 0 ? nullptr : p.state + state_at, g, t);

  const int chunks = task.chunks();
  Turn<S> turn;
  for (int c = 0; c < chunks; ++c) {
    const uint32_t stage = memory.stage(turn.stage);
    const uint32_t record = stage + S::kRecord;
    const uint32_t handed = (c & 1) ^ 1;  // parity of the other warp's last answer
    if (c > 0) barrier_wait(memory.state_empty(pair_index), handed);
    barrier_wait(memory.full(turn.stage), turn.parity);
    uint32_t u[kTiles][4][4];
    {
      float x[kTiles][8][4] = {};
      chain.read(x, stage, memory.state(pair_index), lanes, lane);
      warp_arrive(memory.state_full(pair_index), lane);
      chain.subtract(u, x, stage + S::kV + pair_index * 32 * kTiles,
                     record + offsetof(Record, decay), lanes, t);
    }
    float y[kTiles][8][4] = {};
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int step = 0; step <= row; ++step) {
        const uint4 b = load_shared(record + (block_at(row, step) * 32 + lane) * 16);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint32_t(&a)[4] = u[m][step];
          mma_bf16(y[m][2 * row], a[0], a[1], a[2], a[3], b.x, b.y);
          mma_bf16(y[m][2 * row + 1], a[0], a[1], a[2], a[3], b.z, b.w);
        }
      }
    }
    if (c > 0) barrier_wait(memory.update_empty(pair_index), handed);
    const uint32_t left = record + offsetof(Record, left);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float2 first = load_shared_pair(left + (16 * step + 2 * t) * 4);
      const float2 second = load_shared_pair(left + (16 * step + 8 + 2 * t) * 4);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float(&y0)[4] = y[m][2 * step];
        const float(&y1)[4] = y[m][2 * step + 1];
        store_shared(memory.update(pair_index) + ((m * 4 + step) * 32 + lane) * 16,
                     make_uint4(pack_bf16(y0[0], y0[1]), pack_bf16(y1[0], y1[1]),
                                pack_bf16(y0[2], y0[3]), pack_bf16(y1[2], y1[3])));
        u[m][step][0] = pack_bf16(first.x * y0[0], first.y * y0[1]);
        u[m][step][1] = pack_bf16(first.x * y0[2], first.y * y0[3]);
        u[m][step][2] = pack_bf16(second.x * y1[0], second.y * y1[1]);
        u[m][step][3] = pack_bf16(second.x * y1[2], second.y * y1[3]);
      }
    }
    warp_arrive(memory.update_full(pair_index), lane);
    const float chunk_decay = load_shared_float(record + offsetof(Record, decay) + (kChunk - 1) * 4);
    chain.write(u, chunk_decay, stage, lanes);
    warp_arrive(memory.empty(turn.stage), lane);
    turn.advance();
  }
  chain.store(p.new_state + state_at, g, t);
}

/// A warp that turns the states and updates of its partner into output.
template <class S>
__device__ __forceinline__ void run_output(const Params& p, const Task& task, Memory<S> memory,
                                           int pair_index, int lane) {
  constexpr int kTiles = S::kTiles;
  constexpr int kPieces = 2 * kTiles;  // 16 bytes each, of an output row
  const int g = lane / 4;
  const int t = lane % 4;
  const Lanes lanes(lane, S::kVRowBytes);
  const uint32_t own = memory.update(pair_index);
  __nv_bfloat16* output = p.output + (task.begin * kHeads + task.head) * kWidth + task.column +
                          pair_index * 16 * kTiles;
  const int chunks = task.chunks();
  Turn<S> turn;
  for (int c = 0; c < chunks; ++c) {
    const uint32_t stage = memory.stage(turn.stage);
    const uint32_t record = stage + S::kRecord;
    const uint32_t parity = c & 1;
    float o[4][2 * kTiles][4] = {};
    barrier_wait(memory.full(turn.stage), turn.parity);
    barrier_wait(memory.state_full(pair_index), parity);
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      uint4 b[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        b[m] = load_shared(memory.state(pair_index) + ((m * 8 + step) * 32 + lane) * 16);
      }
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        uint32_t a[4];
        load_matrices(a, stage + S::kQ + lanes.a_operand + row * 16 * kRowBytes + step * 32);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma_bf16(o[row][2 * m], a[0], a[1], a[2], a[3], b[m].x, b[m].z);
          mma_bf16(o[row][2 * m + 1], a[0], a[1], a[2], a[3], b[m].y, b[m].w);
        }
      }
    }
    warp_arrive(memory.state_empty(pair_index), lane);
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const uint32_t decay = record + offsetof(Record, decay) + (16 * row + g) * 4;
      const float upper = p.scale * load_shared_float(decay);
      const float below = p.scale * load_shared_float(decay + 32);
#pragma unroll
      for (int n = 0; n < 2 * kTiles; ++n) {
        o[row][n][0] *= upper;
        o[row][n][1] *= upper;
        o[row][n][2] *= below;
        o[row][n][3] *= below;
      }
    }
    barrier_wait(memory.update_full(pair_index), parity);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint4 b[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        b[m] = load_shared(own + ((m * 4 + step) * 32 + lane) * 16);
      }
#pragma unroll
      for (int row = step; row < 4; ++row) {
        const uint4 a = load_shared(record + offsetof(Record, attend) +
                                    (block_at(row, step) * 32 + lane) * 16);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma_bf16(o[row][2 * m], a.x, a.y, a.z, a.w, b[m].x, b[m].y);
          mma_bf16(o[row][2 * m + 1], a.x, a.y, a.z, a.w, b[m].z, b[m].w);
        }
      }
    }
    warp_arrive(memory.empty(turn.stage), lane);
    turn.advance();
    // The place of the update, which has been read, serves to turn accumulators into rows.
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int n = 0; n < 2 * kTiles; ++n) {
        const uint32_t at = own + (16 * row + g) * S::kOutRowBytes + n * 16 + t * 4;
        store_shared_word(at, pack_bf16(o[row][n][0], o[row][n][1]));
        store_shared_word(at + 8 * S::kOutRowBytes, pack_bf16(o[row][n][2], o[row][n][3]));
      }
    }
    __syncwarp();
    const int count = task.tokens - c * kChunk;
#pragma unroll
    for (int i = 0; i < kChunk * kPieces / 32; ++i) {
      const int piece = i * 32 + lane;
      const int token = piece / kPieces;
      const uint4 x = load_shared(own + token * S::kOutRowBytes + piece % kPieces * 16);
      if (token < count) {
        *reinterpret_cast<uint4*>(output + (static_cast<int64_t>(c) * kChunk + token) * (kHeads * kWidth) +
                                  piece % kPieces * 8) = x;
      }
    }
    warp_arrive(memory.update_empty(pair_index), lane);
  }
}

/// The sequence of a block: longer ones first where there are more blocks than fit at once.
template <class S>
__device__ __forceinline__ int sequence_of(const Params& p, int place, bool sorted) {
  if (!sorted) return place;
  __shared__ int lengths[kMostSorted];
  __shared__ int found;
  for (int n = threadIdx.x; n < p.sequences; n += S::kThreads) {
    lengths[n] = static_cast<int>(p.cu_seqlens[n + 1] - p.cu_seqlens[n]);
  }
  __syncthreads();
  for (int n = threadIdx.x; n < p.sequences; n += S::kThreads) {
    const int own = lengths[n];
    int rank = 0;
    for (int other = 0; other < p.sequences; ++other) {
      rank += lengths[other] > own || (lengths[other] == own && other < n);
    }
    if (rank == place) found = n;
  }
  __syncthreads();
  return found;
}

/// One block for a sequence, value head and kColumns of V.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) chain(const __grid_constant__ Params p,
                                                        bool sorted) {
  extern __shared__ __align__(128) char shared[];
  const Memory<S> memory{shared_address(shared)};
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(memory.full(i), S::kLoaders * 32);
      barrier_init(memory.empty(i), 2 * S::kPairs);
    }
    for (int i = 0; i < 4 * S::kPairs; ++i) barrier_init(memory.state_full(0) + 8 * i, 1);
  }
  Task task;
  const unsigned item = blockIdx.x / S::kSplits;
  task.sequence = sequence_of<S>(p, item / kHeads, sorted);
  task.head = item % kHeads;
  task.column = blockIdx.x % S::kSplits * S::kColumns;
  task.begin = p.cu_seqlens[task.sequence];
  task.tokens = static_cast<int>(p.cu_seqlens[task.sequence + 1] - task.begin);
  __syncthreads();
  if (warp < S::kPairs) {
    run_chain<S>(p, task, memory, warp, lane);
  } else if (warp < 2 * S::kPairs) {
    run_output<S>(p, task, memory, warp - S::kPairs, lane);
  } else {
    load_chunks<S>(p, task, memory, threadIdx.x - 2 * S::kPairs * 32);
  }
}

}  // namespace gdn
