// Second kernel: the state, chunk after chunk, and what it is read out for.
#pragma once

#include "record.cuh"
#include "ptx.cuh"
#include "schedule.cuh"
#include "shapes.cuh"

namespace gdn::chunked {

/// Offsets of a lane's row in the four 8 x 8 matrices that one load fetches.
struct Lanes {
  uint32_t row_major;   // second matrix to the right, third below
  uint32_t transposed;  // second matrix below, third to the right
  uint32_t v_rows;      // as row_major

  __device__ Lanes(int lane, int v_row_bytes)
      : row_major((lane % 8 + lane / 16 * 8) * kRowBytes + lane / 8 % 2 * 16),
        transposed((lane % 8 + lane / 8 % 2 * 8) * kRowBytes + lane / 16 * 16),
        v_rows((lane % 8 + lane / 16 * 8) * v_row_bytes + lane / 8 % 2 * 16) {}
};

/// The state of kTiles * 16 columns of V and a part of K, transposed (V x K), as accumulators of
/// one warp.
template <class S>
struct Chain {
  static constexpr int kTiles = S::kTiles;
  static constexpr int kSteps = 8 / S::kParts;  // of 16 columns of K
  float s[kTiles][2 * kSteps][4];

  __device__ __forceinline__ void load(const float* source, int lane) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * kSteps; ++n) {
        float2 upper = make_float2(0.0f, 0.0f);
        float2 below = upper;
        if (source != nullptr) {
          const float* at = source + (16 * m + lane / 4) * kWidth + 8 * n + 2 * (lane % 4);
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

  __device__ __forceinline__ void store(float* target, int lane) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * kSteps; ++n) {
        float* at = target + (16 * m + lane / 4) * kWidth + 8 * n + 2 * (lane % 4);
        *reinterpret_cast<float2*>(at) = make_float2(s[m][n][0], s[m][n][1]);
        *reinterpret_cast<float2*>(at + 8 * kWidth) = make_float2(s[m][n][2], s[m][n][3]);
      }
    }
  }

  /// Columns 16 step .. of S rounded, as an A operand. With its middle words swapped it is two B
  /// operands of S^T.
  __device__ __forceinline__ uint4 rounded(int m, int step) const {
    const float(&left)[4] = s[m][2 * step];
    const float(&right)[4] = s[m][2 * step + 1];
    return make_uint4(pack_bf16(left[0], left[1]), pack_bf16(left[2], left[3]),
                      pack_bf16(right[0], right[1]), pack_bf16(right[2], right[3]));
  }

  /// What rounding to `x` has left of the same.
  __device__ __forceinline__ uint4 rest(int m, int step, const uint4& x) const {
    const float(&left)[4] = s[m][2 * step];
    const float(&right)[4] = s[m][2 * step + 1];
    return make_uint4(pack_bf16(left[0] - low_bf16(x.x), left[1] - high_bf16(x.x)),
                      pack_bf16(left[2] - low_bf16(x.y), left[3] - high_bf16(x.y)),
                      pack_bf16(right[0] - low_bf16(x.z), right[1] - high_bf16(x.z)),
                      pack_bf16(right[2] - low_bf16(x.w), right[3] - high_bf16(x.w)));
  }

  /// x = S k^T (V x tokens); what S is rounded to is handed over on the way, and the rest if it is
  /// sharp.
  __device__ __forceinline__ void read(float (&x)[kTiles][8][4], uint32_t k_tile,
                                       uint32_t hand_over, bool sharp, const Lanes& lanes,
                                       int lane) const {
    constexpr int kBuffers = S::kRoomy || (!S::kSolo && kTiles == 1) ? 2 : 1;
    uint32_t b[kBuffers][4][4];
    const auto fetch = [&](int step) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        load_matrices(b[step % kBuffers][pair],
                      k_tile + lanes.row_major + pair * 16 * kRowBytes + step * 32);
      }
    };
    if (kBuffers == 2) fetch(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kBuffers == 1) fetch(step);
      if (kBuffers == 2 && step + 1 < kSteps) fetch(step + 1);
      uint4 a[kTiles];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        a[m] = rounded(m, step);
        if constexpr (!S::kSolo) {
          const uint32_t target = hand_over + ((m * kSteps + step) * 2 * 32 + lane) * 16;
          store_shared(target, a[m]);
          if (sharp) store_shared(target + 32 * 16, rest(m, step, a[m]));
        }
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const uint32_t(&rows)[4] = b[step % kBuffers][pair];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma_bf16(x[m][2 * pair], a[m].x, a[m].y, a[m].z, a[m].w, rows[0], rows[1]);
          mma_bf16(x[m][2 * pair + 1], a[m].x, a[m].y, a[m].z, a[m].w, rows[2], rows[3]);
        }
      }
    }
  }

  /// Adds what the other part of K gives to x.
  __device__ __forceinline__ void exchange(float (&x)[kTiles][8][4], uint32_t own, uint32_t other,
                                           int barrier, int lane) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float(&tile)[4] = x[m][n];
        store_shared(own + ((m * 8 + n) * 32 + lane) * 16,
                     make_uint4(__float_as_uint(tile[0]), __float_as_uint(tile[1]),
                                __float_as_uint(tile[2]), __float_as_uint(tile[3])));
      }
    }
    warps_meet(barrier, S::kParts * 32);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const uint4 tile = load_shared(other + ((m * 8 + n) * 32 + lane) * 16);
        x[m][n][0] += __uint_as_float(tile.x);
        x[m][n][1] += __uint_as_float(tile.y);
        x[m][n][2] += __uint_as_float(tile.z);
        x[m][n][3] += __uint_as_float(tile.w);
      }
    }
  }

  /// x = v - decay x, rounded as A operands `a`; then x = beta x.
  __device__ __forceinline__ void subtract(uint32_t (&a)[kTiles][4][4], float (&x)[kTiles][8][4],
                                           const uint32_t (&v)[kTiles][4][4], uint32_t record,
                                           int lane) const {
    const uint32_t decay = record + offsetof(Record, decay) + lane % 4 * 8;
    const uint32_t strength = record + offsetof(Record, strength) + lane % 4 * 8;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = load_shared_pair(decay + n * 32);
      const float2 beta = load_shared_pair(strength + n * 32);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = n % 2 * 2 + r;
          float& x0 = x[m][n][2 * r];
          float& x1 = x[m][n][2 * r + 1];
          x0 = fmaf(-factor.x, x0, low_bf16(v[m][n / 2][i]));
          x1 = fmaf(-factor.y, x1, high_bf16(v[m][n / 2][i]));
          a[m][n / 2][i] = pack_bf16(x0, x1);
          x0 *= beta.x;
          x1 *= beta.y;
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
      for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] *= chunk_decay;
      }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int pair = 0; pair < kSteps; ++pair) {
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

/// v (V x tokens), in the places of A operands.
template <class S>
__device__ __forceinline__ void load_values(uint32_t (&v)[S::kTiles][4][4], uint32_t v_tile) {
#pragma unroll
  for (int m = 0; m < S::kTiles; ++m) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      load_matrices_transposed(v[m][pair], v_tile + pair * 16 * S::kVRowBytes + m * 32);
    }
  }
}

/// The output of kTiles * 16 columns of V and 16 kRows tokens of a chunk from 16 kFirst on,
/// (tokens x V), as accumulators of one warp.
template <class S, int kFirst, int kRows>
struct Output {
  static constexpr int kTiles = S::kTiles;
  float o[kRows][2 * kTiles][4] = {};

  /// o += q[:, 16 step ..] S[:, 16 step ..]^T
  __device__ __forceinline__ void read(const uint4 (&state)[kTiles], int step, uint32_t q_tile,
                                       int lane) {
    const uint32_t rows = q_tile + lane % 16 * kRowBytes + lane / 16 * 16 + step * 32;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      uint32_t a[4];
      load_matrices(a, rows + (kFirst + row) * 16 * kRowBytes);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma_bf16(o[row][2 * m], a[0], a[1], a[2], a[3], state[m].x, state[m].z);
        mma_bf16(o[row][2 * m + 1], a[0], a[1], a[2], a[3], state[m].y, state[m].w);
      }
    }
  }

  /// o *= scale * decay
  __device__ __forceinline__ void scale(float scale, uint32_t record, int lane) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const uint32_t decay =
          record + offsetof(Record, decay) + (16 * (kFirst + row) + lane / 4) * 4;
      const float upper = scale * load_shared_float(decay);
      const float below = scale * load_shared_float(decay + 32);
#pragma unroll
      for (int n = 0; n < 2 * kTiles; ++n) {
        o[row][n][0] *= upper;
        o[row][n][1] *= upper;
        o[row][n][2] *= below;
        o[row][n][3] *= below;
      }
    }
  }

  /// o += attend[:, 16 step ..] u[16 step .., :]
  __device__ __forceinline__ void attend(const uint4 (&update)[kTiles], int step, uint32_t record,
                                         int lane) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (kFirst + row < step) continue;
        const int block = part * Record::kBlocks + block_at(kFirst + row, step);
        const uint4 a = load_shared(record + offsetof(Record, attend) + (block * 32 + lane) * 16);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma_bf16(o[row][2 * m], a.x, a.y, a.z, a.w, update[m].x, update[m].y);
          mma_bf16(o[row][2 * m + 1], a.x, a.y, a.z, a.w, update[m].z, update[m].w);
        }
      }
    }
  }

  /// Writes those rows that are among the first `count` of the chunk; `turn` is the warp's own
  /// shared memory, to turn accumulators into rows.
  __device__ __forceinline__ void store(__nv_bfloat16* output, int count, uint32_t turn, int lane) {
    constexpr int kPieces = 2 * kTiles;  // 16 bytes each, of a row
    __syncwarp();                        // the rows before are read
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int n = 0; n < 2 * kTiles; ++n) {
        const uint32_t at = turn + (16 * row + lane / 4) * S::kOutRowBytes + n * 16 + lane % 4 * 4;
        store_shared_word(at, pack_bf16(o[row][n][0], o[row][n][1]));
        store_shared_word(at + 8 * S::kOutRowBytes, pack_bf16(o[row][n][2], o[row][n][3]));
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * kRows * kPieces / 32; ++i) {
      const int row = (i * 32 + lane) / kPieces;
      const int piece = lane % kPieces;
      const uint4 x = load_shared(turn + row * S::kOutRowBytes + piece * 16);
      const int token = 16 * kFirst + row;
      if (token < count) {
        *reinterpret_cast<uint4*>(output + token * (kHeads * kWidth) + piece * 8) = x;
      }
    }
  }
};

/// A warp that has a piece of the state.
template <class S>
__device__ __forceinline__ void run_chain(const Params& p, const Schedule<S>& schedule,
                                          Memory<S> memory, int index, int lane) {
  constexpr int kTiles = S::kTiles;
  const Lanes lanes(lane, S::kVRowBytes);
  const int warp = index / S::kParts;
  const int part = index % S::kParts;
  const int own_column = warp * 16 * kTiles;
  const int own_piece = own_column * kWidth + part * (kWidth / S::kParts);  // of the state
  Chain<S> chain;
  {
    const Task first = schedule.task(p, schedule.first());
    chain.load(p.state == nullptr || first.tokens == 0
                   ? nullptr
                   : p.state + first.state_at() + own_piece,
               lane);
  }
  bool loaded = true;
  bool sharp = false;  // the state, after the chunk before
  int exchange = 0;
  Turn<S> turn;
  bool ready = false;
  for (;;) {
    if (!ready) barrier_wait(memory.full(turn.stage), turn.parity);
    const uint32_t stage = memory.stage(turn.stage);
    const uint32_t record = stage + S::kRecord;
    const int tokens = load_note(stage + S::kNote).tokens;
    if (tokens < 0) break;
    if (!loaded) {
      const Note note = load_note(stage + S::kNote);
      if (note.chunk == 0) {
        chain.load(p.state == nullptr || tokens == 0
                       ? nullptr
                       : p.state + note.state_at(S::kColumns) + own_piece,
                   lane);
      }
    }
    loaded = false;
    if (tokens > 0) {
      uint32_t u[kTiles][4][4];
      float y[kTiles][8][4] = {};
      const uint32_t v_tile = stage + S::kV + lanes.v_rows + own_column * 2;
      if constexpr (S::kRoomy) load_values<S>(u, v_tile);
      const uint32_t k_tile = stage + part * (2 * kWidth / S::kParts);
      chain.read(y, k_tile,
                 stage + S::kStates + warp * S::kStateBytes + part * (S::kStateBytes / S::kParts),
                 sharp, lanes, lane);
      // All chains of a block write the same.
      if (!S::kSolo && lane == 0) store_shared_word(stage + S::kSharp, sharp);
      if constexpr (S::kParts > 1) {
        chain.exchange(y, memory.exchange(exchange, index), memory.exchange(exchange, index ^ 1),
                       1 + warp, lane);
        exchange ^= 1;
      }
      if constexpr (!S::kRoomy) load_values<S>(u, v_tile);
      chain.subtract(u, y, u, record, lane);
      const uint32_t left = record + offsetof(Record, left) + lane % 4 * 8;
      uint4 update[4][kTiles];  // as B operands of u
      // Downwards, so that the operand of a row's own step is free for the row's result.
#pragma unroll
      for (int row = 3; row >= 0; --row) {
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
        const float2 first = load_shared_pair(left + row * 64);
        const float2 second = load_shared_pair(left + row * 64 + 32);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const float(&y0)[4] = y[m][2 * row];
          const float(&y1)[4] = y[m][2 * row + 1];
          update[row][m] = make_uint4(pack_bf16(y0[0], y0[1]), pack_bf16(y1[0], y1[1]),
                                      pack_bf16(y0[2], y0[3]), pack_bf16(y1[2], y1[3]));
          if (!S::kSolo && part == row % S::kParts) {
            store_shared(stage + S::kUpdates + warp * S::kUpdateBytes +
                             ((m * 4 + row) * 32 + lane) * 16,
                         update[row][m]);
          }
          u[m][row][0] = pack_bf16(first.x * y0[0], first.y * y0[1]);
          u[m][row][1] = pack_bf16(first.x * y0[2], first.y * y0[3]);
          u[m][row][2] = pack_bf16(second.x * y1[0], second.y * y1[1]);
          u[m][row][3] = pack_bf16(second.x * y1[2], second.y * y1[3]);
        }
      }
      if constexpr (S::kSolo) {
        const auto compute = [&](auto output) {
#pragma unroll
          for (int step = 0; step < 8; ++step) {
            uint4 state[kTiles];
#pragma unroll
            for (int m = 0; m < kTiles; ++m) state[m] = chain.rounded(m, step);
            output.read(state, step, stage + S::kQ, lane);
          }
          output.scale(p.scale, record, lane);
#pragma unroll
          for (int step = 0; step < 4; ++step) output.attend(update[step], step, record, lane);
          const Note note = load_note(stage + S::kNote);
          output.store(p.output + note.output_at(S::kColumns) + own_column, note.rest(),
                       memory.rows(warp), lane);
        };
        if constexpr (S::kRoomy) {
          compute(Output<S, 0, 4>{});
        } else {
          compute(Output<S, 0, 2>{});
          compute(Output<S, 2, 2>{});
        }
      } else {
        warp_arrive(memory.ready(turn.stage, warp), lane);
      }
      const float chunk_decay =
          load_shared_float(record + offsetof(Record, decay) + (kChunk - 1) * 4);
      sharp = load_shared_float(record + offsetof(Record, left) +
                                (kChunk - kLastTokens - 1) * 4) < kSharpDecay;
      const Turn<S> next = turn.next();
      ready = barrier_test(memory.full(next.stage), next.parity);
      chain.write(u, chunk_decay, k_tile, lanes);
    } else {
      ready = false;
    }
    const Note note = load_note(stage + S::kNote);  // again: cheaper than to keep it
    warp_arrive(memory.empty(turn.stage), lane);
    if (note.last()) {
      sharp = false;
      chain.store(p.new_state + note.state_at(S::kColumns) + own_piece, lane);
    }
    turn = turn.next();
  }
}

/// A warp that turns the states and updates of its partner into output.
template <class S>
__device__ __forceinline__ void run_output(const Params& p, Memory<S> memory, int warp, int lane) {
  constexpr int kTiles = S::kTiles;
  Turn<S> turn;
  uint32_t parities = 0;  // of `ready`, a bit for each stage: it has no phase without tokens
  for (;;) {
    barrier_wait(memory.full(turn.stage), turn.parity);
    const uint32_t stage = memory.stage(turn.stage);
    const uint32_t record = stage + S::kRecord;
    const Note note = load_note(stage + S::kNote);
    if (note.end()) break;
    if (note.tokens > 0) {
      barrier_wait(memory.ready(turn.stage, warp), parities >> turn.stage & 1);
      parities ^= 1u << turn.stage;
      const bool sharp = load_shared_word(stage + S::kSharp) != 0;
      Output<S, 0, 4> output;
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        uint4 state[kTiles];
        uint4 rest[kTiles];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          constexpr int kSteps = Chain<S>::kSteps;
          const int at = (step / kSteps * kTiles + m) * kSteps + step % kSteps;
          const uint32_t states = stage + S::kStates + warp * S::kStateBytes;
          state[m] = load_shared(states + (at * 64 + lane) * 16);
          if (sharp) rest[m] = load_shared(states + (at * 64 + 32 + lane) * 16);
        }
        output.read(state, step, stage + S::kQ, lane);
        if (sharp) output.read(rest, step, stage + S::kQ, lane);
      }
      output.scale(p.scale, record, lane);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint4 update[kTiles];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          update[m] = load_shared(stage + S::kUpdates + warp * S::kUpdateBytes +
                                  ((m * 4 + step) * 32 + lane) * 16);
        }
        output.attend(update, step, record, lane);
      }
      warp_arrive(memory.empty(turn.stage), lane);
      output.store(p.output + note.output_at(S::kColumns) + warp * 16 * kTiles, note.rest(),
                   memory.rows(warp), lane);
    } else {
      warp_arrive(memory.empty(turn.stage), lane);
    }
    turn = turn.next();
  }
}

/// Blocks take (sequence, value head, kColumns of V) one after the other.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) chain(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char shared[];
  __shared__ unsigned short order[kMostSorted];
  const Memory<S> memory{shared_address(shared)};
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(memory.full(i), S::kLoaders * 32 + 1);
      barrier_init(memory.empty(i), S::kWorkers);
    }
    for (int i = 0; i < S::kStages * S::kPairs; ++i) {
      barrier_init(memory.ready(0, 0) + 8 * i, S::kParts);
    }
  }
  const Schedule<S> schedule(p, order);
  __syncthreads();
  if (warp < S::kChains) {
    run_chain<S>(p, schedule, memory, warp, lane);
  } else if (warp < S::kWorkers) {
    run_output<S>(p, memory, warp - S::kChains, lane);
  } else if (warp >= S::kFirstLoader) {
    run_loader<S>(p, schedule, memory, threadIdx.x - S::kFirstLoader * 32);
  }
}

}  // namespace gdn::chunked
