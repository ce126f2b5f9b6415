// Which chunks a block of the second kernel works on, and the warps that load them.
#pragma once

#include "record.cuh"
#include "ptx.cuh"
#include "shapes.cuh"

namespace gdn::chunked {

constexpr int kMostSorted = 256;  // sequences that are put in order of their length

/// A sequence, value head and part of V.
struct Task {
  int begin;  // first token
  int tokens;
  int lane;  // sequence * 8 + head
  int column;

  __device__ int head() const { return lane % kHeads; }
  __device__ int64_t state_at() const {
    return static_cast<int64_t>(lane) * kStateSize + column * kWidth;
  }
  /// One without tokens still has a state to write.
  __device__ int chunks() const { return tokens == 0 ? 1 : (tokens + kChunk - 1) / kChunk; }
};

/// What goes with a loaded chunk.
struct Note {
  int begin;   // of the sequence
  int tokens;  // of the sequence; negative after the last task
  int chunk;
  int place;  // (sequence * 8 + head) * splits + split

  __device__ bool end() const { return tokens < 0; }
  __device__ bool last() const { return (chunk + 1) * kChunk >= tokens; }
  /// Tokens from the chunk's first on.
  __device__ int rest() const { return tokens - chunk * kChunk; }
  __device__ int64_t state_at(int columns) const {
    return static_cast<int64_t>(place) * columns * kWidth;
  }
  __device__ int64_t output_at(int columns) const {
    const int splits = kWidth / columns;
    return static_cast<int64_t>(begin + chunk * kChunk) * (kHeads * kWidth) +
           place % (kHeads * splits) * columns;
  }
};

__device__ __forceinline__ Note load_note(uint32_t address) {
  const uint4 x = load_shared(address);
  return {static_cast<int>(x.x), static_cast<int>(x.y), static_cast<int>(x.z),
          static_cast<int>(x.w)};
}

/// Tasks in order of decreasing length, dealt out to the blocks to and fro.
template <class S>
struct Schedule {
  const unsigned short* order;  // sequences; null for their own order
  int tasks;
  int first_block;

  /// `before` is how many blocks of the grid do something else.
  __device__ Schedule(const Params& p, unsigned short* memory, int before = 0)
      : order(p.sequences <= kMostSorted ? memory : nullptr),
        tasks(p.sequences * kHeads * S::kSplits),
        first_block(before) {
    if (order == nullptr) return;
    __shared__ int lengths[kMostSorted];
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
      memory[rank] = static_cast<unsigned short>(n);
    }
    __syncthreads();
  }

  __device__ int first() const { return static_cast<int>(blockIdx.x) - first_block; }

  __device__ int after(int task) const {
    const int blocks = static_cast<int>(gridDim.x) - first_block;
    const int round = task / blocks;
    return (round + 2) * blocks - 1 - task % blocks;
  }

  __device__ Task task(const Params& p, int index) const {
    const int rank = index / (kHeads * S::kSplits);
    const int sequence = order == nullptr ? rank : order[rank];
    const int rest = index % (kHeads * S::kSplits);
    const int begin = static_cast<int>(p.cu_seqlens[sequence]);
    const int end = static_cast<int>(p.cu_seqlens[sequence + 1]);
    return {begin, end - begin, sequence * kHeads + rest / S::kSplits,
            rest % S::kSplits * S::kColumns};
  }
};

/// Rows of q, k and v of one chunk; zeros where the sequence has ended.
template <class S>
__device__ __forceinline__ void load_rows(const Params& p, const Task& task, int chunk,
                                          uint32_t stage, int thread) {
  constexpr int kStep = S::kLoaders * 32;
  const int64_t first = task.begin + chunk * kChunk;
  const int count = task.tokens - chunk * kChunk;
  {
    constexpr int kRows = kStep / 16;
    const int row = thread / 16;
    const int64_t source =
        ((first + row) * kQkHeads + task.head() / (kHeads / kQkHeads)) * kWidth + thread % 16 * 8;
    const __nv_bfloat16* k = p.k + source;
    const __nv_bfloat16* q = p.q + source;
    const uint32_t target = stage + row * kRowBytes + thread % 16 * 16;
#pragma unroll
    for (int i = 0; i < kChunk; i += kRows) {
      const bool valid = row + i < count;
      copy_async(target + i * kRowBytes, k + i * kQkHeads * kWidth, valid);
      copy_async(target + S::kQ + i * kRowBytes, q + i * kQkHeads * kWidth, valid);
    }
  }
  constexpr int kPieces = S::kColumns / 8;
  constexpr int kRows = kStep / kPieces;
  const int row = thread / kPieces;
  const __nv_bfloat16* v = p.v + ((first + row) * kHeads + task.head()) * kWidth + task.column +
                           thread % kPieces * 8;
  const uint32_t target = stage + S::kV + row * S::kVRowBytes + thread % kPieces * 16;
#pragma unroll
  for (int i = 0; i < kChunk; i += kRows) {
    copy_async(target + i * S::kVRowBytes, v + i * kHeads * kWidth, row + i < count);
  }
}

template <class S>
__device__ __forceinline__ void load_record(const Params& p, const Task& task, int chunk,
                                            uint32_t stage, int thread) {
  const int64_t slot = slot_of(task.begin, task.lane / kHeads) + chunk;
  const char* source = p.workspace + (slot * kHeads + task.head()) * sizeof(Record);
#pragma unroll
  for (int piece = thread; piece < static_cast<int>(sizeof(Record) / 16);
       piece += S::kLoaders * 32) {
    copy_async(stage + S::kRecord + piece * 16, source + piece * 16, true);
  }
}

template <class S>
__device__ __forceinline__ void post(Memory<S> memory, int stage, const Note& note, int thread) {
  barrier_arrive_after_copies(memory.full(stage));
  if (thread == 0) {
    store_shared(memory.stage(stage) + S::kNote,
                 make_uint4(note.begin, note.tokens, note.chunk, note.place));
    barrier_arrive(memory.full(stage));
  }
}

/// The warps that load, ahead of those that compute, also from one task to the next.
template <class S>
__device__ __forceinline__ void run_loader(const Params& p, const Schedule<S>& schedule,
                                           Memory<S> memory, int thread) {
  Turn<S> turn;
  bool waited = false;
  for (int index = schedule.first(); index < schedule.tasks; index = schedule.after(index)) {
    const Task task = schedule.task(p, index);
    Note note{task.begin, task.tokens, 0, task.lane * S::kSplits + task.column / S::kColumns};
    const int chunks = task.chunks();
    if (!waited) {
      // q, k and v do not come from the kernel before this one: they need not wait for it.
      const int ahead = task.tokens == 0 ? 0 : chunks < S::kStages ? chunks : S::kStages;
      for (int c = 0; c < ahead; ++c) load_rows<S>(p, task, c, memory.stage(c), thread);
      wait_for_previous_kernel();
      waited = true;
      for (; note.chunk < ahead; ++note.chunk) {
        load_record<S>(p, task, note.chunk, memory.stage(note.chunk), thread);
        post<S>(memory, turn.stage, note, thread);
        turn = turn.next();
      }
    } else if (thread == 0 && p.state != nullptr && task.tokens > 0) {
      prefetch(p.state + task.state_at(), S::kColumns * kWidth * sizeof(float));
    }
    for (; note.chunk < chunks; ++note.chunk) {
      barrier_wait(memory.empty(turn.stage), turn.parity ^ 1);
      if (task.tokens > 0) {
        load_rows<S>(p, task, note.chunk, memory.stage(turn.stage), thread);
        load_record<S>(p, task, note.chunk, memory.stage(turn.stage), thread);
      }
      post<S>(memory, turn.stage, note, thread);
      turn = turn.next();
    }
  }
  barrier_wait(memory.empty(turn.stage), turn.parity ^ 1);
  post<S>(memory, turn.stage, Note{0, -1, 0, 0}, thread);
}

}  // namespace gdn::chunked
