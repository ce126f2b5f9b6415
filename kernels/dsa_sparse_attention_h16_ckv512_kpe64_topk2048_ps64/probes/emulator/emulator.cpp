// Runs the solution on a CPU: a fiber for each thread, all blocks at once. See README.md.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "fibers.h"
#include "launch.cuh"

namespace fibers {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kPatience = 200'000;  // turns without progress that mean a deadlock
constexpr unsigned kMostThreads = 384;
constexpr unsigned kMostWarps = kMostThreads / 32;

struct Copy {
  void* target;
  const void* source;
  bool valid;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::vector<Copy> copies;
  unsigned thread;
  unsigned block;
  bool done;
};

struct Meeting {
  void* arguments[32];
  int here = 0;
  unsigned number = 0;
};

char shared[kMostBlocks * kSharedBytes] __attribute__((aligned(1024)));
ucontext_t scheduler;
Fiber all[kMostBlocks * kMostThreads];
Fiber* running;
const std::function<void()>* body;
Meeting warp_meetings[kMostBlocks * kMostWarps];
Meeting block_meetings[kMostBlocks][16];  // the first is that of the whole block
unsigned threads;
unsigned block_count;
long happened;
std::mt19937 generator;
std::vector<std::pair<const char*, size_t>> readable;

void start() {
  (*body)();
  if (!running->copies.empty()) fail("copies that nobody waits for");
  running->done = true;
  ++happened;
  give_way();
}

void begin(Fiber& fiber, unsigned block, unsigned thread) {
  if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
  fiber.thread = thread;
  fiber.block = block;
  fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, start, 0);
}

void run_blocks() {
  for (Meeting& meeting : warp_meetings) meeting = {};
  for (auto& meetings : block_meetings) {
    for (Meeting& meeting : meetings) meeting = {};
  }
  std::memset(shared, 0xff, sizeof shared);
  unsigned left = block_count * threads;
  for (unsigned i = 0; i < left; ++i) begin(all[i], i / threads, i % threads);
  long before = -1;
  for (int idle = 0; left > 0; idle = happened == before ? idle + 1 : 0) {
    if (idle > kPatience) fail("deadlock");
    before = happened;
    const unsigned warp = generator() % (block_count * threads / 32);
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
void come(Meeting& meeting, unsigned count, Act&& act) {
  if (static_cast<unsigned>(++meeting.here) < count) return;
  meeting.here = 0;
  act();
  ++meeting.number;
  ++happened;
}

template <class Act>
void meet(Meeting& meeting, unsigned count, Act&& act) {
  const unsigned own = meeting.number;
  come(meeting, count, act);
  while (meeting.number == own) give_way();
}

Meeting& named_meeting(int index, unsigned count) {
  if (index < 1 || index > 15 || count % 32 != 0) fail("no such barrier");
  return block_meetings[running->block][index];
}

}  // namespace

void run_grid(unsigned blocks, unsigned block_threads, const std::function<void()>& kernel) {
  body = &kernel;
  threads = block_threads;
  block_count = blocks;
  run_blocks();
}

void give_way() { swapcontext(&running->context, &scheduler); }
void progress() { ++happened; }
unsigned random_bits() { return generator(); }
unsigned thread() { return running->thread; }
unsigned block() { return running->block; }
unsigned blocks() { return block_count; }
char* shared_memory() { return shared + running->block * kSharedBytes; }

void fail(const char* what) {
  std::fprintf(stderr, "block %u, thread %u: %s\n", block(), thread(), what);
  std::_Exit(1);  // a fiber's stack is no place to leave a process in good order from
}

void meet_block() { meet(block_meetings[running->block][0], threads, [] {}); }

void meet_some(int index, unsigned count) { meet(named_meeting(index, count), count, [] {}); }
void count_some(int index, unsigned count) { come(named_meeting(index, count), count, [] {}); }

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = warp_meetings[running->block * (threads / 32) + running->thread / 32];
  meeting.arguments[running->thread % 32] = argument;
  meet(meeting, 32, [&] { act(meeting.arguments); });
}

void start_copy(void* target, const void* source, bool valid) {
  running->copies.push_back({target, source, valid});
}

void finish_copies() {
  for (const Copy& copy : running->copies) {
    if (copy.valid) {
      std::memcpy(copy.target, copy.source, 16);
    } else {
      std::memset(copy.target, 0, 16);
    }
  }
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

/// Pointers in the order of the definition's inputs (without sm_scale) and outputs. Returns
/// whether the launches succeeded. `processors` is how many blocks run at once.
extern "C" int run(void** pointers, int64_t tokens, int64_t cached, float sm_scale,
                   int processors) {
  using namespace dsa;
  using Bf16 = const __nv_bfloat16*;
  fibers::forget_reads();
  fibers::allow_reads(pointers[0], tokens * kHeads * kLatent * 2);
  fibers::allow_reads(pointers[1], tokens * kHeads * kRope * 2);
  fibers::allow_reads(pointers[2], cached * kLatent * 2);
  fibers::allow_reads(pointers[3], cached * kRope * 2);
  fibers::allow_reads(pointers[4], tokens * kPlaces * 4);
  Problem problem{};
  problem.q_nope = static_cast<Bf16>(pointers[0]);
  problem.q_pe = static_cast<Bf16>(pointers[1]);
  problem.ckv = static_cast<Bf16>(pointers[2]);
  problem.kpe = static_cast<Bf16>(pointers[3]);
  problem.selected = static_cast<const int32_t*>(pointers[4]);
  problem.output = static_cast<__nv_bfloat16*>(pointers[5]);
  problem.lse = static_cast<float*>(pointers[6]);
  problem.factor = sm_scale * 1.44269504f;
  problem.tokens = tokens;
  std::vector<char> scratch(scratch_bytes(processors), '\xff');
  const bool launched = launch(problem, scratch.data(), processors, nullptr) == cudaSuccess;
  for (const char byte : scratch) {
    if (byte != '\xff') fibers::fail("scratch memory is not as it was");
  }
  return launched;
}
