// Runs the two kernels of cuda-chunked on a CPU: a fiber for each thread, a block at a time.
#include <ucontext.h>

#include <functional>
#include <memory>
#include <random>

#include "chain.cuh"
#include "fused.cuh"
#include "prepare.cuh"
#include "tiles.cuh"
#include "wide.cuh"

namespace gdn {

char origin[16] __attribute__((aligned(1024)));

}  // namespace gdn

namespace warps {

constexpr size_t kSharedBytes = 240 << 10;
constexpr size_t kStackBytes = 256 << 10;
constexpr long kPatience = 20'000'000;  // rounds of a block

char shared[kSharedBytes] __attribute__((aligned(1024)));

namespace {

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  unsigned thread;
  bool done;
};

struct Meeting {
  void* arguments[32];
  int here = 0;
  unsigned number = 0;
};

ucontext_t scheduler;
Fiber fibers[1024];
Fiber* running;
std::function<void()> body;
Meeting warp_meetings[32];
Meeting block_meeting;
int threads;
unsigned block_index;
unsigned block_count;
std::mt19937 random_order;

void start() {
  body();
  running->done = true;
  give_way();
}

void run_block(int count) {
  threads = count;
  for (Meeting& meeting : warp_meetings) meeting = {};
  block_meeting = {};
  memset(shared, 0xff, sizeof shared);
  gdn::barriers.clear();
  for (int i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.thread = i;
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, start, 0);
  }
  int left = count;
  for (long round = 0; left > 0; ++round) {
    if (round == kPatience) gdn::fail("no end in sight");
    const unsigned warp = random_order() % (count / 32);
    for (unsigned i = warp * 32; i < warp * 32 + 32; ++i) {
      if (fibers[i].done) continue;
      running = &fibers[i];
      swapcontext(&scheduler, &running->context);
      left -= fibers[i].done;
    }
  }
}

void run_grid(unsigned count, int block_threads, const std::function<void()>& kernel) {
  body = kernel;
  block_count = count;
  for (block_index = 0; block_index < count; ++block_index) run_block(block_threads);
}

}  // namespace

unsigned thread() { return running->thread; }
unsigned block() { return block_index; }
unsigned blocks() { return block_count; }
void give_way() { swapcontext(&running->context, &scheduler); }

void meet_block() {
  const unsigned own = block_meeting.number;
  if (++block_meeting.here == threads) {
    block_meeting.here = 0;
    ++block_meeting.number;
  }
  while (block_meeting.number == own) give_way();
}

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = warp_meetings[running->thread / 32];
  const unsigned own = meeting.number;
  meeting.arguments[running->thread % 32] = argument;
  if (++meeting.here == 32) {
    meeting.here = 0;
    act(meeting.arguments);
    ++meeting.number;
  }
  while (meeting.number == own) give_way();
}

}  // namespace warps

using namespace gdn;

template <class S>
constexpr bool kIsWide = requires { S::kFused; };

template <class S>
using RecordOf = std::conditional_t<kIsWide<S>, TileRecord, Record>;

/// Launches both kernels, or the one that is both.
template <class S>
void launch(const Params& p, int processors) {
  const unsigned slots = slots_of(p.tokens, p.sequences) * kHeads;
  const int tasks = p.sequences * kHeads * S::kSplits;
  const int blocks = std::min(tasks, processors * S::kBlocks);
  if constexpr (kIsWide<S>) {
    const auto map = [&](const void* data, int rows, int columns, int bytes) {
      return TensorMap{static_cast<char*>(const_cast<void*>(data)), rows, columns, bytes};
    };
    const int states = p.sequences * kHeads * kWidth;
    const Maps maps{map(p.q, p.tokens, kKeyHeads * kWidth, 2),
                    map(p.k, p.tokens, kKeyHeads * kWidth, 2),
                    map(p.v, p.tokens, kHeads * kWidth, 2), map(p.state, states, kWidth, 4),
                    map(p.new_state, states, kWidth, 4)};
    if constexpr (S::kFused) {
      warps::run_grid(std::max(1, processors - tasks) + tasks, S::kThreads,
                      [&] { fused<S>(p, maps); });
    } else {
      warps::run_grid(slots, kPrepareThreads, [&] { prepare_tiles(p, maps); });
      warps::run_grid(blocks, S::kThreads, [&] { wide_chain<S>(p, maps); });
    }
  } else {
    warps::run_grid(slots, kPrepareThreads, [&] { prepare(p); });
    warps::run_grid(blocks, S::kThreads, [&] { chain<S>(p); });
  }
}

// Tensors in the order of Params; `processors` is how many multiprocessors share the tasks.
extern "C" void run(const void* q, const void* k, const void* v, const void* state,
                    const void* A_log, const void* a, const void* dt_bias, const void* b,
                    const void* cu_seqlens, void* output, void* new_state, float scale, int tokens,
                    int sequences, int processors) {
  using S = SHAPE;
  const int64_t slots = slots_of(tokens, sequences);
  using R = RecordOf<S>;
  std::vector<R> records(slots * kHeads);
  memset(static_cast<void*>(records.data()), 0xff, records.size() * sizeof(R));
  Params p;
  p.q = static_cast<const __nv_bfloat16*>(q);
  p.k = static_cast<const __nv_bfloat16*>(k);
  p.v = static_cast<const __nv_bfloat16*>(v);
  p.state = static_cast<const float*>(state);
  p.A_log = static_cast<const float*>(A_log);
  p.a = static_cast<const __nv_bfloat16*>(a);
  p.dt_bias = static_cast<const float*>(dt_bias);
  p.b = static_cast<const __nv_bfloat16*>(b);
  p.cu_seqlens = static_cast<const int64_t*>(cu_seqlens);
  p.output = static_cast<__nv_bfloat16*>(output);
  p.new_state = static_cast<float*>(new_state);
  p.workspace = reinterpret_cast<char*>(records.data());
  std::vector<unsigned> flags(slots * kHeads);
  p.flags = flags.data();
  p.scale = scale;
  p.tokens = tokens;
  p.sequences = sequences;

  const auto allow = [](const void* data, size_t bytes) {
    if (data != nullptr) readable.push_back({static_cast<const char*>(data), bytes});
  };
  readable.clear();
  allow(q, size_t{2} * tokens * kKeyHeads * kWidth);
  allow(k, size_t{2} * tokens * kKeyHeads * kWidth);
  allow(v, size_t{2} * tokens * kHeads * kWidth);
  allow(state, size_t{4} * sequences * kHeads * kStateSize);
  allow(records.data(), records.size() * sizeof(R));

  launch<S>(p, processors);
  for (unsigned flag : flags) {
    if (flag != 0) gdn::fail("a flag is up after the end");
  }
}
