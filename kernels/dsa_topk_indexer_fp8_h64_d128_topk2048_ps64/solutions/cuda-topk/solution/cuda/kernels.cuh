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
  float2 weights[kHeads / 2];
  Selection selection;
  uint64_t arrived;
};

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

/// The pages of a row that a warpgroup scores: page, page + kWarpgroups, ... below end.
struct Pages {
  const int* table;
  const uint8_t* cache;
  int page, end;
  int ids;  // of the warpgroup's next 32 pages, one a lane
  int used = 0;

  __device__ __forceinline__ void fetch_ids() {
    const int lane = threadIdx.x % 32;
    const int at = page + lane * kWarpgroups;
    ids = at < end ? table[at] : 0;
  }

  /// Starts to load the next page, where there is one.
  __device__ __forceinline__ void load(PageShare& share, const Place& place, uint64_t policy) {
    if (page >= end) return;
    if (used == 32) {
      fetch_ids();
      used = 0;
    }
    const int id = __shfl_sync(kAllLanes, ids, used++);
    load_share(share, cache + static_cast<int64_t>(id) * kPageBytes, place, policy);
    page += kWarpgroups;
  }
};

/// Scores one page; `next` starts the loads that take the place of `share`.
template <class Next>
__device__ __forceinline__ float2 score_page(PageShare& share, uint32_t queries,
                                             const float2* weights, int lane_share, Next next) {
  uint32_t a[kSteps][4];
  float c[32];
  const float scale[2] = {share.scale[0], share.scale[1]};
  to_factors(a, share);
  products_start(c, a, queries);
  next();
  products_wait(c);
  return weighted(c, weights, scale, lane_share);
}

/// All pages of the block's part of a row; put(page, token of the page, score) is called by one
/// lane for each token.
template <class Put, class Ready>
__device__ __forceinline__ void score_pages(Pages& pages, const Storage& storage, const Place& place,
                                            Ready ready, Put put) {
  const uint32_t queries = shared_address(storage.queries);
  const uint64_t policy = page_policy();
  PageShare ahead[2];
  int page = pages.page;
  pages.fetch_ids();
  pages.load(ahead[0], place, policy);
  pages.load(ahead[1], place, policy);
  ready();
  const auto finish = [&](PageShare& share) {
    const float2 score = score_page(share, queries, storage.weights, place.share,
                                    [&] { pages.load(share, place, policy); });
    const int token = 16 * place.warp + place.token;
    if (place.share < 2) {
      const float own = place.share == 0 ? score.x : score.y;
      const bool is_number = own == own;  // what is none counts as infinite
      put(page, token + 8 * place.share, is_number ? own : __int_as_float(0x7f800000));
    }
    page += kWarpgroups;
  };
  while (page < pages.end) {
    finish(ahead[0]);
    if (page < pages.end) finish(ahead[1]);
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
/// long row. (A loop over rows would keep the registers of a page from the selection.)
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
  if (threadIdx.x == 0) barrier_init(arrived);
  cluster_arrive();
  clear_bins(selection);
  const Part part = part_of_block(rows.count_long(), post);
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

    RowShare inputs;
    inputs.load(p.q + static_cast<int64_t>(row.index) * kHeads * kDim,
                p.weights + static_cast<int64_t>(row.index) * kHeads);
    Pages pages{table.pages(row.index), p.cache, begin + warpgroup_of_thread(), end, 0};
    const int* page_ids = nullptr;
    const auto ready = [&] {
      if (met) {  // the row before may still be selected from
        __syncthreads();
        clear_bins(selection);
      }
      inputs.store(shared_address(storage.queries), storage.weights);
      if (leads) {
        page_ids = table.keep(row.index, count);
        if (threadIdx.x == 0 && part.blocks > 1) barrier_expect(arrived, (count - end) * kPage * 4);
      }
      __syncthreads();
      if (!met) cluster_wait();
      met = true;
    };
    uint32_t lowest = ~0u, highest = 0;
    score_pages(pages, storage, place_of_thread(), ready, [&](int page, int token, float score) {
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
    if (part.blocks > 1) barrier_wait(arrived);
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
  RowShare inputs;
  inputs.load(p.q + static_cast<int64_t>(row) * kHeads * kDim,
              p.weights + static_cast<int64_t>(row) * kHeads);
  Pages pages{pages_of(p, row), p.cache, begin + warpgroup_of_thread(), end, 0};
  const auto ready = [&] {
    inputs.store(shared_address(storage.queries), storage.weights);
    __syncthreads();
  };
  float* const scores = p.scores + static_cast<int64_t>(row) * p.width * kPage;
  score_pages(pages, storage, place_of_thread(), ready, [&](int page, int token, float score) {
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
