// Runs the solution on a CPU: a fiber for each thread, a block at a time. See README.md.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "fibers.h"
#include "layer.cuh"

namespace fibers {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kPatience = 20'000;  // turns without progress that mean a deadlock

struct Copy {
  void* target;
  const void* source;
  bool valid;
  int bytes;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::vector<Copy> copies;
  unsigned thread;
  bool done;
};

struct Meeting {
  void* arguments[32];
  int here = 0;
  unsigned number = 0;
};

char shared[kSharedBytes] __attribute__((aligned(1024)));
ucontext_t scheduler;
Fiber all[1024];
Fiber* running;
const std::function<void()>* body;
Meeting warp_meetings[32];
Meeting meetings[16];  // the first is that of the whole block
unsigned threads;
unsigned block_index;
unsigned block_count;
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

void begin(Fiber& fiber, unsigned thread) {
  if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
  fiber.thread = thread;
  fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, start, 0);
}

void run_block() {
  for (Meeting& meeting : warp_meetings) meeting = {};
  for (Meeting& meeting : meetings) meeting = {};
  std::memset(shared, 0xff, sizeof shared);
  for (unsigned i = 0; i < threads; ++i) begin(all[i], i);
  unsigned left = threads;
  long before = -1;
  for (int idle = 0; left > 0; idle = happened == before ? idle + 1 : 0) {
    if (idle > kPatience) fail("deadlock");
    before = happened;
    const unsigned warp = random_bits() % (threads / 32);
    for (unsigned i = warp * 32; i < warp * 32 + 32; ++i) {
      if (all[i].done) continue;
      running = &all[i];
      swapcontext(&scheduler, &running->context);
      left -= all[i].done;
    }
  }
}

/// One more is there; the last one acts before all go on.
template <class Act>
void come(Meeting& meeting, int count, Act&& act) {
  if (++meeting.here < count) return;
  meeting.here = 0;
  act();
  ++meeting.number;
  progress();
}

template <class Act>
void meet(Meeting& meeting, int count, Act&& act) {
  const unsigned own = meeting.number;
  come(meeting, count, act);
  while (meeting.number == own) give_way();
}

Meeting& named_meeting(int index, int count) {
  if (index < 1 || index > 15 || count % 32 != 0) fail("no such barrier");
  return meetings[index];
}

}  // namespace

void run_grid(unsigned count, unsigned block_threads, const std::function<void()>& kernel) {
  body = &kernel;
  threads = block_threads;
  block_count = count;
  for (block_index = 0; block_index < count; ++block_index) run_block();
}

unsigned thread() { return running->thread; }
unsigned block() { return block_index; }
unsigned blocks() { return block_count; }
void* dynamic_shared_memory() { return shared; }
unsigned random_bits() { return generator(); }
void give_way() { swapcontext(&running->context, &scheduler); }
void progress() { ++happened; }

void fail(const char* what) {
  std::fprintf(stderr, "block %u, thread %u: %s\n", block(), thread(), what);
  std::_Exit(1);  // a fiber's stack is no place to leave a process in good order from
}

void meet_block() {
  meet(meetings[0], static_cast<int>(threads), [] {});
}

void meet_some(int index, int count) { meet(named_meeting(index, count), count, [] {}); }
void count_some(int index, int count) { come(named_meeting(index, count), count, [] {}); }

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = warp_meetings[running->thread / 32];
  meeting.arguments[running->thread % 32] = argument;
  meet(meeting, 32, [&] { act(meeting.arguments); });
}

void start_copy(void* target, const void* source, bool valid, int bytes) {
  running->copies.push_back({target, source, valid, bytes});
}

void finish_copies() {
  for (const Copy& copy : running->copies) {
    if (copy.valid) {
      std::memcpy(copy.target, copy.source, copy.bytes);
    } else {
      std::memset(copy.target, 0, copy.bytes);
    }
  }
  running->copies.clear();
}

void allow_reads(const void* data, size_t bytes) {
  if (data != nullptr) readable.emplace_back(static_cast<const char*>(data), bytes);
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

/// Pointers in the order of the definition's inputs (without scalars) and outputs. `tile` 0 is the
/// one that serves such a call. Returns the tile, or -1 where a launch fails.
extern "C" int run(void** p, int tokens, int offset, float factor, int tile, int processors) {
  using Bytes = const uint8_t*;
  using F32 = const float*;
  const moe::Problem problem{static_cast<F32>(p[0]),
                             static_cast<const __nv_bfloat16*>(p[1]),
                             static_cast<Bytes>(p[2]),
                             static_cast<F32>(p[3]),
                             static_cast<Bytes>(p[4]),
                             static_cast<F32>(p[5]),
                             static_cast<Bytes>(p[6]),
                             static_cast<F32>(p[7]),
                             static_cast<__nv_bfloat16*>(p[8]),
                             tokens,
                             offset,
                             factor};
  using namespace moe;
  if (tile == 0) tile = tile_for(tokens);
  if (tile < 0) tile = 0;
  Scratch scratch;
  const size_t bytes = lay_out(scratch, nullptr, tokens, tile);
  std::vector<char> memory(bytes + 256, '\xff');
  char* const base = memory.data() + (-reinterpret_cast<uintptr_t>(memory.data()) & 255);
  lay_out(scratch, base, tokens, tile);
  fibers::forget_reads();
  fibers::allow_reads(problem.tokens_fp8, size_t{kHidden} * tokens);
  fibers::allow_reads(problem.tokens_scale, size_t{kHiddenBlocks} * tokens * 4);
  fibers::allow_reads(problem.w13, size_t{kLocal} * 2 * kInner * kHidden);
  fibers::allow_reads(problem.w13_scale, size_t{kLocal} * 2 * kInnerBlocks * kHiddenBlocks * 4);
  fibers::allow_reads(problem.w2, size_t{kLocal} * kInner * kHidden);
  fibers::allow_reads(problem.w2_scale, size_t{kLocal} * kInnerBlocks * kHiddenBlocks * 4);
  fibers::allow_reads(base, bytes);
  return launch_layer(problem, scratch, tile, processors, nullptr) == cudaSuccess ? tile : -1;
}
