// Runs the solution's kernels on a CPU: a fiber for each thread, a cluster at a time.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "fibers.h"
#include "kernels.cuh"

namespace fibers {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kPatience = 50'000;  // turns without progress that mean a deadlock

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::vector<std::pair<uint32_t*, const uint32_t*>> copies;
  unsigned thread, rank;
  bool done;
};

struct Meeting {
  void* arguments[32];
  unsigned here = 0;
  unsigned number = 0;
};

std::vector<Fiber> all;
std::vector<std::unique_ptr<char[]>> shared;
std::vector<Meeting> warps, blocks_meet;
Meeting cluster_meeting;
std::vector<std::function<void()>> pending;
ucontext_t scheduler;
Fiber* running;
const std::function<void()>* body;
unsigned threads, cluster, first_block, block_count, row_index, row_count;
long happened;
std::mt19937 generator;
std::vector<std::pair<const char*, size_t>> readable;

void start() {
  (*body)();
  if (!running->copies.empty()) fail("copies that nobody waits for");
  running->done = true;
  progress();
  give_way();
}

void begin(Fiber& fiber, unsigned index) {
  if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
  fiber.thread = index % threads;
  fiber.rank = index / threads;
  fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, start, 0);
}

void act_on_pending(size_t most) {
  for (; most > 0 && !pending.empty(); --most) {
    std::swap(pending[random_bits() % pending.size()], pending.back());
    pending.back()();
    pending.pop_back();
    progress();
  }
}

void run_cluster() {
  warps.assign(cluster * threads / 32, {});
  blocks_meet.assign(cluster, {});
  cluster_meeting = {};
  while (shared.size() < cluster) {
    shared.emplace_back(static_cast<char*>(std::aligned_alloc(1024, kSharedBytes)));
  }
  for (unsigned i = 0; i < cluster; ++i) std::memset(shared[i].get(), 0xff, kSharedBytes);
  if (all.size() < cluster * threads) all.resize(cluster * threads);
  for (unsigned i = 0; i < cluster * threads; ++i) begin(all[i], i);
  unsigned left = cluster * threads;
  long before = -1;
  for (int idle = 0; left > 0; idle = happened == before ? idle + 1 : 0) {
    if (idle > kPatience) fail("deadlock");
    before = happened;
    act_on_pending(random_bits() % 8);
    const unsigned warp = random_bits() % (cluster * threads / 32);
    for (unsigned i = warp * 32; i < warp * 32 + 32; ++i) {
      if (all[i].done) continue;
      running = &all[i];
      swapcontext(&scheduler, &running->context);
      left -= all[i].done;
    }
  }
  if (!pending.empty()) fail("stores into a block that is gone");
}

/// One more is there; the last one acts before all go on.
template <class Act>
void meet(Meeting& meeting, unsigned count, Act&& act) {
  const unsigned own = meeting.number;
  if (++meeting.here == count) {
    meeting.here = 0;
    act();
    ++meeting.number;
    progress();
  }
  while (meeting.number == own) give_way();
}

}  // namespace

void run_grid(unsigned blocks, unsigned rows, unsigned block_threads, unsigned blocks_of_cluster,
              const std::function<void()>& kernel) {
  body = &kernel;
  threads = block_threads;
  block_count = blocks;
  row_count = rows;
  cluster = blocks_of_cluster;
  for (row_index = 0; row_index < rows; ++row_index) {
    for (first_block = 0; first_block < blocks; first_block += cluster) run_cluster();
  }
}

unsigned thread() { return running->thread; }
unsigned block() { return first_block + running->rank; }
unsigned block_row() { return row_index; }
unsigned blocks() { return block_count; }
unsigned block_rows() { return row_count; }
unsigned cluster_size() { return cluster; }
char* shared_memory(unsigned rank) { return shared[rank].get(); }
unsigned random_bits() { return generator(); }
void give_way() { swapcontext(&running->context, &scheduler); }
void progress() { ++happened; }

void fail(const char* what) {
  std::fprintf(stderr, "block %u, thread %u: %s\n", block(), thread(), what);
  std::_Exit(1);  // a fiber's stack is no place to leave a process in good order from
}

void meet_block() {
  meet(blocks_meet[running->rank], threads, [] {});
}

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = warps[(running->rank * threads + running->thread) / 32];
  meeting.arguments[running->thread % 32] = argument;
  meet(meeting, 32, [&] { act(meeting.arguments); });
}

void arrive_cluster() {
  ++cluster_meeting.here;
  progress();
}

void wait_cluster() {
  while (cluster_meeting.here < cluster * threads) give_way();
}

void put_off(const std::function<void()>& act) { pending.push_back(act); }

void copy_later(uint32_t* target, const uint32_t* source) {
  check_read(source, sizeof *source);
  running->copies.emplace_back(target, source);
}

void finish_copies() {
  for (const auto& [target, source] : running->copies) *target = *source;
  running->copies.clear();
}

void allow_reads(const void* data, size_t bytes) {
  readable.emplace_back(static_cast<const char*>(data), bytes);
}

void forget_reads() { readable.clear(); }

void check_read(const void* source, size_t bytes) {
  const char* first = static_cast<const char*>(source);
  for (const auto& [data, size] : readable) {
    if (first >= data && first + bytes <= data + size) return;
  }
  fail("read outside of every tensor");
}

}  // namespace fibers

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
    fibers::run_grid(blocks, 1, KOPT_LIST_THREADS, 1, [&] { list_rows(p); });
  } else if (way == 1) {
    const auto blocks = static_cast<unsigned>(cluster);
    const bool few = width * kPage <= kHeld && rows <= clusters * cluster;
    fibers::run_grid(static_cast<unsigned>(clusters) * blocks, 1, kThreads, blocks,
                     [&] { few ? index_rows<true>(p) : index_rows<false>(p); });
  } else {
    fibers::run_grid(grid, 3, kThreads, 1, [&] { score_rows(p); });
    fibers::run_grid(grid, 1, kThreads, 1, [&] { select_rows(p); });
  }
}
