// Kernels: short rows alone; all rows in one launch; and, for contexts whose scores do not fit the
// shared memory of a block, scores and selection in two.
#pragma once

#include <algorithm>

#include "problem.cuh"
#include "products.cuh"
#include "ptx.cuh"
#include "schedule.cuh"
#include "select.cuh"

namespace topk {

/// Shared memory of a block; `scores` and the pages of the row follow.
struct alignas(1024) Storage {
  uint8_t queries[kQueryBytes];
  uint8_t pages[kWarpgroups][kStages][kPageBytes];
  float2 weights[kHeads / 2];
  Selection selection;
  uint64_t loaded[kWarpgroups][kStages];
  uint64_t arrived;  // the scores of other blocks
};

/// By one thread, before the block meets.
__device__ __forceinline__ void init_barriers(Storage& storage) {
  for (auto& stages : storage.loaded) {
    for (auto& loaded : stages) barrier_init(shared_address(&loaded));
  }
  barrier_init(shared_address(&storage.arrived));
  barriers_visible();
}

/// With scores of a row and the block table, or the part of it that is the row's.
inline size_t storage_bytes(int width, bool staged) {
  const size_t entries = static_cast<size_t>(staged ? std::max(width, kStaged) : width);
  return 1024 + sizeof(Storage) + (static_cast<size_t>(width) * kPage + entries) * 4;
}

/// All tokens of a row, then -1; by `threads` threads of which the caller is `thread`.
__device__ __forceinline__ void list_row(const Problem& p, int row, const int* pages, int length,
                                         int thread, int threads) {
  int4* target = reinterpret_cast<int4*>(p.selected + static_cast<int64_t>(row) * kSelected);
#pragma unroll 1
  for (int i = thread; i < kSelected / 4; i += threads) {
    const int token = 4 * i;
    // Whatever the length: it may still be on its way.
    const int page = token / kPage < p.width ? pages[token / kPage] : 0;
    int4 ids = make_int4(-1, -1, -1, -1);
    if (token < length) {
      const int id = page * kPage + token % kPage;
      ids.x = id;
      if (token + 1 < length) ids.y = id + 1;
      if (token + 2 < length) ids.z = id + 2;
      if (token + 3 < length) ids.w = id + 3;
    }
    target[i] = ids;
  }
}

__device__ __forceinline__ const int* pages_of(const Problem& p, int row) {
  return p.table + static_cast<int64_t>(row) * p.width;
}

/// Where no row can be long.
__global__ void __launch_bounds__(KOPT_LIST_THREADS) list_rows(const Problem p) {
  constexpr int kBlocks = kSelected / 4 / KOPT_LIST_THREADS;
  const int row = blockIdx.x / kBlocks;
  list_row(p, row, pages_of(p, row), length_of(p, row),
           blockIdx.x % kBlocks * KOPT_LIST_THREADS + threadIdx.x, kSelected / 4);
}

/// The pages that a warpgroup scores, on their way through its part of shared memory.
class Ring {
 public:
  __device__ explicit Ring(Storage& storage)
      : storage_(storage), group_(warpgroup_of_thread()), leads_(threadIdx.x % 128 == 0) {}

  /// Starts with the pages begin, begin + kWarpgroups, ... below end of a row; all of before were
  /// taken.
  __device__ __forceinline__ void start(const int* table, const uint8_t* cache, int begin,
                                        int end) {
    table_ = table;
    cache_ = cache;
    next_ = page_ = begin + group_;
    end_ = end;
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) load((taken_ + i) % kStages);
  }

  __device__ __forceinline__ bool is_left() const { return page_ < end_; }

  /// The index of the next page, whose share is taken; `release` has to follow.
  __device__ __forceinline__ int take(PageShare& share, const Place& place) {
    const int stage = taken_ % kStages, page = page_;
    barrier_wait(shared_address(&storage_.loaded[group_][stage]), taken_ / kStages % 2);
    take_share(share, storage_.pages[group_][stage], place);
    page_ += kWarpgroups;
    return page;
  }

  /// Starts to load another page in the place of the one that was taken.
  __device__ __forceinline__ void release() {
    meet_warpgroup(group_);
    load(taken_ % kStages);
    ++taken_;
  }

 private:
  __device__ __forceinline__ void load(int stage) {
    if (leads_ && next_ < end_) {
      const uint32_t loaded = shared_address(&storage_.loaded[group_][stage]);
      barrier_expect(loaded, kPageBytes);
      copy_bulk(shared_address(storage_.pages[group_][stage]),
                cache_ + static_cast<int64_t>(table_[next_]) * kPageBytes, kPageBytes, loaded);
    }
    next_ += kWarpgroups;
  }

  Storage& storage_;
  const int group_;
  const bool leads_;
  int taken_ = 0;  // pages of all rows
  const int* table_;
  const uint8_t* cache_;
  int next_, page_, end_;
};

/// Scores all pages of a ring; put(page, token of the page, score) is called by one lane for each
/// token.
template <class Put>
__device__ __forceinline__ void score_pages(Ring& ring, const Storage& storage, Put put) {
  const uint32_t queries = shared_address(storage.queries);
  const Place place = place_of_thread();
#pragma unroll 1
  while (ring.is_left()) {
    PageShare share;
    const int page = ring.take(share, place);
    uint32_t a[kSteps][4];
    float c[32];
    to_factors(a, share);
    products_start(c, a, queries);
    ring.release();
    products_wait(c);
    const float2 score = weighted(c, storage.weights, share.scale, place.share);
    if (place.share < 2) {
      const float own = place.share == 0 ? score.x : score.y;
      const bool is_number = own == own;  // what is none counts as infinite
      put(page, 16 * place.warp + place.token + 8 * place.share,
          is_number ? own : __int_as_float(0x7f800000));
    }
  }
}

/// Writes what was selected. All threads of the block take part.
__device__ __forceinline__ void write_selected(const Problem& p, const Selection& s, int row) {
  int4* target = reinterpret_cast<int4*>(p.selected + static_cast<int64_t>(row) * kSelected);
  const int4* ids = reinterpret_cast<const int4*>(s.ids);
#pragma unroll
  for (int i = threadIdx.x; i < kSelected / 4; i += kThreads) target[i] = ids[i];
}

extern __shared__ __align__(16) uint8_t dynamic_shared[];

__device__ __forceinline__ Storage& storage_of_block() {
  return *reinterpret_cast<Storage*>(dynamic_shared +
                                     (-shared_address(dynamic_shared) & 1023));
}

/// The block table, or what of it a block needs.
class Table {
 public:
  __device__ Table(const Problem& p, int* kept) : p_(p), kept_(kept) {}

  /// Starts to copy all of it, where that is wanted.
  __device__ __forceinline__ void stage() const {
    if (!p_.staged) return;
    const uint32_t target = shared_address(kept_);
#pragma unroll 1
    for (int i = threadIdx.x; i < p_.rows * p_.width; i += kThreads) {
      copy_word(target + 4 * i, p_.table + i);
    }
  }

  __device__ __forceinline__ const int* pages(int row) const {
    return p_.staged ? kept_ + row * p_.width : pages_of(p_, row);
  }

  /// The same, in shared memory after the block has met.
  __device__ __forceinline__ const int* keep(int row, int count) const {
    if (p_.staged) return kept_ + row * p_.width;
    const int* pages = pages_of(p_, row);
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += kThreads) kept_[i] = __ldg(pages + i);
    return kept_;
  }

 private:
  const Problem& p_;
  int* kept_;
};

/// Lists the short rows that fall to the block.
__device__ __forceinline__ void list_short(const Problem& p, const Rows& rows, const Table& table,
                                           const Post& post) {
  int number = post.cluster + post.clusters * (post.blocks - 1 - post.rank);
#pragma unroll 1
  for (;; number += post.clusters * post.blocks) {
    const Row row = rows.find(false, number);
    if (row.index < 0) return;
    list_row(p, row.index, table.pages(row.index), row.length, threadIdx.x, kThreads);
  }
}

/// Queries and weights of a row to shared memory.
__device__ __forceinline__ void store_row(Storage& storage, const Problem& p, int row) {
  RowShare share;
  share.load(p.q + static_cast<int64_t>(row) * kHeads * kDim,
             p.weights + static_cast<int64_t>(row) * kHeads);
  share.store(shared_address(storage.queries), storage.weights);
}

/// Which rows are long is not known yet, but a few queries more to fetch cost little.
__device__ __forceinline__ void prefetch_queries(const Problem& p) {
#if KOPT_PREFETCH
  constexpr int kLines = kHeads * kDim / 128;  // of a row
  const int line = blockIdx.x + gridDim.x * threadIdx.x;
  if (threadIdx.x < 32 && line < p.rows * kLines) {
    prefetch_line(p.q + static_cast<int64_t>(line) * 128);
  }
#endif
}

/// All rows, in one launch. kFew: no row has more than kHeld tokens, and no block more than one
/// long row. (A loop over rows would keep registers from the selection.)
template <bool kFew>
__global__ void __launch_bounds__(kThreads, 1) index_rows(const __grid_constant__ Problem p) {
  Storage& storage = storage_of_block();
  Selection& selection = storage.selection;
  float* const scores = reinterpret_cast<float*>(&storage + 1);
  const uint32_t arrived = shared_address(&storage.arrived);
  const Post post = {cluster_index(), cluster_count(), cluster_rank(), cluster_size()};
  const Rows rows(p);
  const Table table(p, reinterpret_cast<int*>(scores + p.width * kPage));
  table.stage();
  prefetch_queries(p);
  if (threadIdx.x == 0) init_barriers(storage);
  cluster_arrive();
  clear_bins(selection);
  const Part part = part_of_block(rows.count_long(), post);
  Ring ring(storage);
  copies_wait();
  __syncthreads();

  bool met = false;
#pragma unroll 1
  for (int number = part.first; number < part.end; number += part.step) {
    const Row row = rows.find(true, number);
    const int count = (row.length - 1) / kPage + 1;
    const int begin = ratio(part.member * count, part.blocks);
    const int end = ratio((part.member + 1) * count, part.blocks);
    const bool leads = part.member == 0;
    const uint32_t target = address_in(post.rank - part.member, shared_address(scores));
    const uint32_t told = address_in(post.rank - part.member, arrived);

    if (met) {  // the row before may still be selected from
      __syncthreads();
      clear_bins(selection);
    }
    ring.start(table.pages(row.index), p.cache, begin, end);
    store_row(storage, p, row.index);
    const int* page_ids = nullptr;
    if (leads) {
      page_ids = table.keep(row.index, count);
      if (threadIdx.x == 0 && part.blocks > 1) barrier_expect(arrived, (count - end) * kPage * 4);
    }
    __syncthreads();
    if (!met) cluster_wait();
    met = true;
    uint32_t lowest = ~0u, highest = 0;
    score_pages(ring, storage, [&](int page, int token, float score) {
      const int at = page * kPage + token;
      const bool counts = at < row.length;
      const float x = counts ? score : -__int_as_float(0x7f800000);
      if (!leads) {
        send_float(target + 4 * at, x, told);
        return;
      }
      scores[at] = x;
      lowest = min(lowest, counts ? ordered(x) : ~0u);
      highest = max(highest, counts ? ordered(x) : 0u);
    });
    if (!leads) break;  // such a block has one row
    store_bounds(selection, lowest, highest);
    if (part.blocks > 1) barrier_wait(arrived, 0);
    __syncthreads();
    select_highest<kFew>(selection, scores, row.length, page_ids);
    write_selected(p, selection, row.index);
    if constexpr (kFew) break;
  }
  if (!met) cluster_wait();
  list_short(p, rows, table, post);
}

/// Scores of all long rows, for contexts of any length: blockIdx.x a row, blockIdx.y a part of it.
__global__ void __launch_bounds__(kThreads, 1) score_rows(const __grid_constant__ Problem p) {
  Storage& storage = storage_of_block();
  const int row = blockIdx.x, length = length_of(p, row);
  if (!is_long(length)) return;
  const int64_t count = (length - 1) / kPage + 1;
  const int begin = static_cast<int>(blockIdx.y * count / gridDim.y);
  const int end = static_cast<int>((blockIdx.y + 1) * count / gridDim.y);
  if (threadIdx.x == 0) init_barriers(storage);
  __syncthreads();
  Ring ring(storage);
  ring.start(pages_of(p, row), p.cache, begin, end);
  store_row(storage, p, row);
  __syncthreads();
  float* const scores = p.scores + static_cast<int64_t>(row) * p.width * kPage;
  score_pages(ring, storage, [&](int page, int token, float score) {
    scores[static_cast<int64_t>(page) * kPage + token] = score;
  });
}

/// The selection of a row from its scores.
__global__ void __launch_bounds__(kThreads, 1) select_rows(const __grid_constant__ Problem p) {
  Selection& selection = storage_of_block().selection;
  const int row = blockIdx.x, length = length_of(p, row);
  if (!is_long(length)) {
    list_row(p, row, pages_of(p, row), length, threadIdx.x, kThreads);
    return;
  }
  const float* const scores = p.scores + static_cast<int64_t>(row) * p.width * kPage;
  clear_bins(selection);
  uint32_t lowest = ~0u, highest = 0;
  for_scores(scores, length, [&](float score, int) {
    lowest = min(lowest, ordered(score));
    highest = max(highest, ordered(score));
  });
  store_bounds(selection, lowest, highest);
  __syncthreads();
  select_highest<false>(selection, scores, length, pages_of(p, row));
  write_selected(p, selection, row);
}

}  // namespace topk
