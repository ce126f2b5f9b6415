// Runs grids on a CPU: a fiber for each thread. See README.md.
#include "fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "state.h"

namespace fibers {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kDeadlock = 1000;  // turns of each warp in which nothing happens

const std::function<void()>* body;
Context scheduler;
unsigned at_once = 1;
size_t patience = 1'000'000;  // turns of each warp in which none ends
unsigned long happened;
std::mt19937 generator;

void begin_thread() {
  (*body)();
  if (!own(Queue::kCopies).empty()) fail("copies that nobody waits for");
  if (!own(Queue::kProducts).empty()) fail("products that nobody waits for");
  state.running->done = true;
  progress();
  give_way();
}

void begin_block(Block& block) {
  for (Meeting& meeting : block.meetings) meeting = {};
  for (Meeting& meeting : block.warps) meeting = {};
  std::memset(block.shared.get(), 0xff, kMostAligned + state.grid.dynamic_bytes);
  std::memset(block.shared.get() + state.static_begin, 0xff, kRegionBytes - state.static_begin);
  block.left = state.grid.threads;
  for (unsigned i = 0; i < state.grid.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.block = &block;
    fiber.thread = i;
    fiber.waits = nullptr;
    fiber.at_cluster = false;
    fiber.done = false;
    fiber.context.prepare(block.stacks.get() + i * kStackBytes, kStackBytes, begin_thread);
    if (i % kWarp == 0) state.warps.push_back({&block, i, kWarp});
  }
}

void begin_cluster(Cluster& cluster, unsigned number) {
  cluster.meeting = {};
  cluster.left = state.grid.cluster;
  for (unsigned rank = 0; rank < state.grid.cluster; ++rank) {
    Block& block = cluster.blocks[rank];
    const unsigned index = number * state.grid.cluster + rank;
    block.cluster = &cluster;
    block.rank = rank;
    block.index = index % state.grid.blocks;
    block.row = index / state.grid.blocks;
    begin_block(block);
  }
}

/// Room for what the launch needs; kept for the next.
void make_room(unsigned count) {
  while (state.clusters.size() < count) state.clusters.push_back(std::make_unique<Cluster>());
  for (unsigned i = 0; i < count; ++i) {
    auto& blocks = state.clusters[i]->blocks;
    if (blocks.size() < state.grid.cluster) blocks.resize(state.grid.cluster);
    for (Block& block : blocks) {
      if (!block.shared) {
        block.shared.reset(static_cast<char*>(std::aligned_alloc(kMostAligned, kRegionBytes)));
      }
      if (block.fibers.size() >= state.grid.threads) continue;
      block.fibers.resize(state.grid.threads);
      block.stacks.reset(new char[state.grid.threads * kStackBytes]);  // touched where it is used
    }
  }
}

void act_on_pending(size_t most) {
  for (; most > 0 && !state.pending.empty(); --most) {
    std::swap(state.pending[random_bits() % state.pending.size()], state.pending.back());
    const PutOff next = std::move(state.pending.back());
    state.pending.pop_back();
    next.act();
    progress();
  }
}

/// Lets the fibers of a warp run, those that have what they wait for.
void take_turn(Warp& warp) {
  for (unsigned i = warp.first; i < warp.first + kWarp; ++i) {
    state.running = &warp.block->fibers[i];
    if (state.running->done) continue;
    if (state.running->waits != nullptr && state.running->waits(state.running->argument)) continue;
    state.running->waits = nullptr;
    Context::change(scheduler, state.running->context);
    if (!state.running->context.fits()) fail("a stack that is too small");
    if (state.running->done) --warp.left;
  }
}

/// Whether the cluster of the block has ended with the warp.
bool end_warp(Block& block) {
  block.left -= kWarp;
  if (block.left > 0) return false;
  std::erase_if(state.pending, [&](const PutOff& one) {
    if (one.block != &block) return false;
    if (!one.keeps_block) fail("copies into a block that has ended");
    one.act();
    return true;
  });
  return --block.cluster->left == 0;
}

/// One more is there; the last one acts before all go on.
template <class Do>
void come(Meeting& meeting, int count, const Do& act) {
  if (meeting.here == 0) meeting.count = count;
  if (meeting.count != count) fail("threads differ on how many meet");
  if (++meeting.here < count) return;
  meeting.here = 0;
  act();
  ++meeting.number;
  progress();
}

template <class Do>
void meet(Meeting& meeting, int count, const Do& act) {
  const unsigned number = meeting.number;
  come(meeting, count, act);
  wait_until([&] { return meeting.number != number; });
}

Meeting& named_meeting(int index, int count) {
  if (index < 1 || index > 15 || count % kWarp != 0) fail("no such barrier");
  return state.running->block->meetings[index];
}

}  // namespace

void run_grid(const Grid& launched, const std::function<void()>& kernel) {
  state.grid = launched;
  body = &kernel;
  state.variables.clear();
  state.static_begin = kRegionBytes;
  state.dynamic_begin = 0;
  const unsigned count = state.grid.blocks * state.grid.rows / state.grid.cluster;
  if (count == 0) return;
  const unsigned under_way = std::clamp(at_once / state.grid.cluster, 1u, count);
  make_room(under_way);
  unsigned next = 0;
  while (next < under_way) {
    begin_cluster(*state.clusters[next], next);
    ++next;
  }
  size_t idle = 0;
  size_t turns = 0;
  while (!state.warps.empty()) {
    const unsigned long before = happened;
    act_on_pending(random_bits() % 8);
    const size_t picked = random_bits() % state.warps.size();
    take_turn(state.warps[picked]);
    idle = happened == before ? idle + 1 : 0;
    if (idle > kDeadlock * state.warps.size()) fail("deadlock");
    if (++turns > patience * state.warps.size()) fail("no end in sight");
    if (state.warps[picked].left > 0) continue;
    turns = 0;
    Block& block = *state.warps[picked].block;
    std::swap(state.warps[picked], state.warps.back());
    state.warps.pop_back();
    if (end_warp(block) && next < count) begin_cluster(*block.cluster, next++);
  }
  state.running = nullptr;
}

void set_blocks_at_once(unsigned count) { at_once = count; }
unsigned blocks_at_once() { return at_once; }

unsigned thread() { return state.running->thread; }
unsigned block() { return state.running->block->index; }
unsigned block_row() { return state.running->block->row; }
unsigned blocks() { return state.grid.blocks; }
unsigned block_rows() { return state.grid.rows; }
unsigned threads() { return state.grid.threads; }
unsigned cluster_size() { return state.grid.cluster; }
unsigned cluster_rank() { return state.running->block->rank; }

unsigned random_bits() { return generator(); }
void progress() { ++happened; }
void give_way() { Context::change(state.running->context, scheduler); }

void fail(const char* what) {
  if (state.running == nullptr) {
    std::fprintf(stderr, "%s\n", what);
  } else {
    std::fprintf(stderr, "block %u, thread %u: %s\n", block(), thread(), what);
  }
  std::_Exit(1);  // a fiber's stack is no place to leave a process in good order from
}

void wait_while(bool (*waits)(const void*), const void* argument) {
  state.running->waits = waits;
  state.running->argument = argument;
  give_way();
}

void meet_block() {
  meet(state.running->block->meetings[0], static_cast<int>(state.grid.threads), [] {});
}

void meet_some(int index, int count) { meet(named_meeting(index, count), count, [] {}); }
void count_some(int index, int count) { come(named_meeting(index, count), count, [] {}); }

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = state.running->block->warps[state.running->thread / kWarp];
  meeting.arguments[state.running->thread % kWarp] = argument;
  if (meeting.here == 0) meeting.act = act;
  if (meeting.act != act) fail("lanes of a warp do different things at once");
  meet(meeting, kWarp, [&] { act(meeting.arguments); });
}

void arrive_at_cluster() {
  if (state.running->at_cluster) fail("arrives twice at its cluster");
  state.running->at_cluster = true;
  Meeting& meeting = state.running->block->cluster->meeting;
  state.running->cluster_number = meeting.number;
  come(meeting, static_cast<int>(state.grid.cluster * state.grid.threads), [] {});
}

void wait_for_cluster() {
  if (!state.running->at_cluster) fail("waits for a cluster without having arrived");
  const Meeting& meeting = state.running->block->cluster->meeting;
  const unsigned number = state.running->cluster_number;
  wait_until([&] { return meeting.number != number; });
  state.running->at_cluster = false;
}

}  // namespace fibers

/// Another seed, another order of warps and copies; how many blocks run at once; after how many turns
/// of each warp in which none ends a run is taken for endless.
extern "C" void set_up(unsigned seed, unsigned blocks_at_once, unsigned patience) {
  fibers::generator.seed(seed);
  fibers::set_blocks_at_once(blocks_at_once);
  fibers::patience = patience;
}
