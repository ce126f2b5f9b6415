// Calls the kernels of cuda-topk on a CPU.
#include <vector>

#include "fibers.h"
#include "kernels.cuh"

/// Pointers in the order of the definition's inputs and output. `way` is 0 for short rows alone, 1
/// for one launch, 2 for two. `clusters` of `cluster` blocks work in one launch, which keeps the block
/// table in shared memory if `staged`.
extern "C" void run(void** pointers, int rows, int width, int cached, int way, int clusters,
                    int cluster, int staged) {
  using namespace topk;
  Problem p{};
  p.q = static_cast<const uint8_t*>(pointers[0]);
  p.cache = static_cast<const uint8_t*>(pointers[1]);
  p.weights = static_cast<const float*>(pointers[2]);
  p.lengths = static_cast<const int*>(pointers[3]);
  p.table = static_cast<const int*>(pointers[4]);
  p.selected = static_cast<int*>(pointers[5]);
  p.rows = rows;
  p.width = width;
  p.staged = staged != 0;
  const auto count = static_cast<size_t>(rows);
  std::vector<float> scores(count * static_cast<size_t>(width) * kPage, NAN);
  p.scores = scores.data();
  fibers::forget_reads();
  fibers::allow_reads(p.q, count * kHeads * kDim);
  fibers::allow_reads(p.cache, static_cast<size_t>(cached) * kPageBytes);
  fibers::allow_reads(p.weights, count * kHeads * 4);
  fibers::allow_reads(p.lengths, count * 4);
  fibers::allow_reads(p.table, count * static_cast<size_t>(width) * 4);
  const auto grid = static_cast<unsigned>(rows);
  if (way == 0) {
    const unsigned blocks = grid * (kSelected / 4 / KOPT_LIST_THREADS);
    fibers::run_grid({blocks, 1, KOPT_LIST_THREADS}, [&] { list_rows(p); });
  } else if (way == 1) {
    const auto blocks = static_cast<unsigned>(cluster);
    const bool few = width * kPage <= kHeld && rows <= clusters * cluster;
    fibers::run_grid({static_cast<unsigned>(clusters) * blocks, 1, kThreads, blocks,
                      storage_bytes(width, p.staged)},
                     [&] { few ? index_rows<true>(p) : index_rows<false>(p); });
  } else {
    const size_t bytes = storage_bytes(0, false);
    fibers::run_grid({grid, 3, kThreads, 1, bytes}, [&] { score_rows(p); });
    fibers::run_grid({grid, 1, kThreads, 1, bytes}, [&] { select_rows(p); });
  }
}
