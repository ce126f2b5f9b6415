// Runs grids on a CPU: a fiber for each thread. See README.md.
#include "fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "context.h"

namespace fibers {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kMostAligned = 1024;
constexpr size_t kRegionBytes = kMostAligned + kSharedBytes;
constexpr unsigned kRankShift = 24;
constexpr size_t kDeadlock = 1000;  // turns of each warp in which nothing happens
constexpr unsigned kWarp = 32;

struct Meeting {
  void* arguments[kWarp];
  void (*act)(void**) = nullptr;
  int here = 0;
  int count = 0;
  unsigned number = 0;
};

struct Block;

struct Groups {
  std::vector<std::vector<Act>> closed;
  std::vector<Act> open;

  bool empty() const { return closed.empty() && open.empty(); }
};

struct Fiber {
  Context context;
  Block* block;
  unsigned thread;
  bool (*waits)(const void*);
  const void* argument;
  Groups queues[2];
  unsigned cluster_number;
  bool at_cluster;
  bool done;
};

struct Cluster;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Block {
  std::unique_ptr<char, Free> shared;
  std::unique_ptr<char[]> stacks;
  std::vector<Fiber> fibers;
  Meeting meetings[16];  // the first is that of the whole block
  Meeting warps[kMostThreads / kWarp];
  Cluster* cluster;
  unsigned rank;
  unsigned index;
  unsigned row;
  unsigned left;  // fibers
};

struct Cluster {
  std::vector<Block> blocks;
  Meeting meeting;
  unsigned left;  // blocks
};

struct Warp {
  Block* block;
  unsigned first;  // thread
  unsigned left;
};

struct PutOff {
  Block* block;
  Act act;
  bool keeps_block;  // which ends no sooner
};

std::vector<std::unique_ptr<Cluster>> clusters;
std::vector<Warp> warps;  // that have not ended
std::vector<PutOff> pending;
std::map<const void*, size_t> variables;  // of the launch: how far into shared memory
std::vector<std::pair<const char*, size_t>> readable;
Grid grid;
const std::function<void()>* body;
Context scheduler;
Fiber* running;
size_t dynamic_begin;
size_t static_begin;
unsigned at_once = 1;
size_t patience = 1'000'000;  // turns of each warp in which none ends
unsigned long happened;
std::mt19937 generator;

Groups& own(Queue queue) { return running->queues[static_cast<int>(queue)]; }

void begin_thread() {
  (*body)();
  if (!own(Queue::kCopies).empty()) fail("copies that nobody waits for");
  if (!own(Queue::kProducts).empty()) fail("products that nobody waits for");
  running->done = true;
  progress();
  give_way();
}

void begin_block(Block& block) {
  for (Meeting& meeting : block.meetings) meeting = {};
  for (Meeting& meeting : block.warps) meeting = {};
  std::memset(block.shared.get(), 0xff, kMostAligned + grid.dynamic_bytes);
  std::memset(block.shared.get() + static_begin, 0xff, kRegionBytes - static_begin);
  block.left = grid.threads;
  for (unsigned i = 0; i < grid.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.block = &block;
    fiber.thread = i;
    fiber.waits = nullptr;
    fiber.at_cluster = false;
    fiber.done = false;
    fiber.context.prepare(block.stacks.get() + i * kStackBytes, kStackBytes, begin_thread);
    if (i % kWarp == 0) warps.push_back({&block, i, kWarp});
  }
}

void begin_cluster(Cluster& cluster, unsigned number) {
  cluster.meeting = {};
  cluster.left = grid.cluster;
  for (unsigned rank = 0; rank < grid.cluster; ++rank) {
    Block& block = cluster.blocks[rank];
    const unsigned index = number * grid.cluster + rank;
    block.cluster = &cluster;
    block.rank = rank;
    block.index = index % grid.blocks;
    block.row = index / grid.blocks;
    begin_block(block);
  }
}

/// Room for what the launch needs; kept for the next.
void make_room(unsigned count) {
  while (clusters.size() < count) clusters.push_back(std::make_unique<Cluster>());
  for (unsigned i = 0; i < count; ++i) {
    auto& blocks = clusters[i]->blocks;
    if (blocks.size() < grid.cluster) blocks.resize(grid.cluster);
    for (Block& block : blocks) {
      if (!block.shared) {
        block.shared.reset(static_cast<char*>(std::aligned_alloc(kMostAligned, kRegionBytes)));
      }
      if (block.fibers.size() >= grid.threads) continue;
      block.fibers.resize(grid.threads);
      block.stacks.reset(new char[grid.threads * kStackBytes]);  // touched where it is used
    }
  }
}

void act_on_pending(size_t most) {
  for (; most > 0 && !pending.empty(); --most) {
    std::swap(pending[random_bits() % pending.size()], pending.back());
    const PutOff next = std::move(pending.back());
    pending.pop_back();
    next.act();
    progress();
  }
}

/// Lets the fibers of a warp run, those that have what they wait for.
void take_turn(Warp& warp) {
  for (unsigned i = warp.first; i < warp.first + kWarp; ++i) {
    running = &warp.block->fibers[i];
    if (running->done) continue;
    if (running->waits != nullptr && running->waits(running->argument)) continue;
    running->waits = nullptr;
    Context::change(scheduler, running->context);
    if (!running->context.fits()) fail("a stack that is too small");
    if (running->done) --warp.left;
  }
}

/// Whether the cluster of the block has ended with the warp.
bool end_warp(Block& block) {
  block.left -= kWarp;
  if (block.left > 0) return false;
  std::erase_if(pending, [&](const PutOff& one) {
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
  return running->block->meetings[index];
}

Block& block_at(uint32_t address) {
  const unsigned rank = address >> kRankShift;
  if (rank >= grid.cluster) fail("no block of the cluster has such an address");
  Block& block = running->block->cluster->blocks[rank];
  if (block.left == 0) fail("shared memory of a block that has ended");
  return block;
}

}  // namespace

void run_grid(const Grid& launched, const std::function<void()>& kernel) {
  grid = launched;
  body = &kernel;
  variables.clear();
  static_begin = kRegionBytes;
  dynamic_begin = 0;
  const unsigned count = grid.blocks * grid.rows / grid.cluster;
  if (count == 0) return;
  const unsigned under_way = std::clamp(at_once / grid.cluster, 1u, count);
  make_room(under_way);
  unsigned next = 0;
  while (next < under_way) {
    begin_cluster(*clusters[next], next);
    ++next;
  }
  size_t idle = 0;
  size_t turns = 0;
  while (!warps.empty()) {
    const unsigned long before = happened;
    act_on_pending(random_bits() % 8);
    const size_t picked = random_bits() % warps.size();
    take_turn(warps[picked]);
    idle = happened == before ? idle + 1 : 0;
    if (idle > kDeadlock * warps.size()) fail("deadlock");
    if (++turns > patience * warps.size()) fail("no end in sight");
    if (warps[picked].left > 0) continue;
    turns = 0;
    Block& block = *warps[picked].block;
    std::swap(warps[picked], warps.back());
    warps.pop_back();
    if (end_warp(block) && next < count) begin_cluster(*block.cluster, next++);
  }
  running = nullptr;
}

void set_blocks_at_once(unsigned count) { at_once = count; }
unsigned blocks_at_once() { return at_once; }

unsigned thread() { return running->thread; }
unsigned block() { return running->block->index; }
unsigned block_row() { return running->block->row; }
unsigned blocks() { return grid.blocks; }
unsigned block_rows() { return grid.rows; }
unsigned threads() { return grid.threads; }
unsigned cluster_size() { return grid.cluster; }
unsigned cluster_rank() { return running->block->rank; }

unsigned random_bits() { return generator(); }
void progress() { ++happened; }
void give_way() { Context::change(running->context, scheduler); }

void fail(const char* what) {
  if (running == nullptr) {
    std::fprintf(stderr, "%s\n", what);
  } else {
    std::fprintf(stderr, "block %u, thread %u: %s\n", block(), thread(), what);
  }
  std::_Exit(1);  // a fiber's stack is no place to leave a process in good order from
}

void wait_while(bool (*waits)(const void*), const void* argument) {
  running->waits = waits;
  running->argument = argument;
  give_way();
}

void meet_block() {
  meet(running->block->meetings[0], static_cast<int>(grid.threads), [] {});
}

void meet_some(int index, int count) { meet(named_meeting(index, count), count, [] {}); }
void count_some(int index, int count) { come(named_meeting(index, count), count, [] {}); }

void meet_warp(void* argument, void (*act)(void**)) {
  Meeting& meeting = running->block->warps[running->thread / kWarp];
  meeting.arguments[running->thread % kWarp] = argument;
  if (meeting.here == 0) meeting.act = act;
  if (meeting.act != act) fail("lanes of a warp do different things at once");
  meet(meeting, kWarp, [&] { act(meeting.arguments); });
}

void arrive_at_cluster() {
  if (running->at_cluster) fail("arrives twice at its cluster");
  running->at_cluster = true;
  Meeting& meeting = running->block->cluster->meeting;
  running->cluster_number = meeting.number;
  come(meeting, static_cast<int>(grid.cluster * grid.threads), [] {});
}

void wait_for_cluster() {
  if (!running->at_cluster) fail("waits for a cluster without having arrived");
  const Meeting& meeting = running->block->cluster->meeting;
  const unsigned number = running->cluster_number;
  wait_until([&] { return meeting.number != number; });
  running->at_cluster = false;
}

uint32_t shared_address(const void* pointer) {
  const auto distance = static_cast<const char*>(pointer) - running->block->shared.get();
  if (distance < 0 || distance > static_cast<ptrdiff_t>(kRegionBytes)) {
    fail("not an address in the block's shared memory");
  }
  return address_in(running->block->rank, static_cast<uint32_t>(distance));
}

uint32_t address_in(unsigned rank, uint32_t address) {
  return (address & ((1u << kRankShift) - 1)) | rank << kRankShift;
}

char* shared_at(uint32_t address, size_t bytes, size_t alignment) {
  Block& block = block_at(address);
  const size_t first = address & ((1u << kRankShift) - 1);
  if (first % alignment != 0) fail("misaligned access to shared memory");
  const bool dynamic = first >= dynamic_begin && first + bytes <= dynamic_begin + grid.dynamic_bytes;
  const bool fixed = first >= static_begin && first + bytes <= kRegionBytes;
  if (!dynamic && !fixed) fail("access beyond shared memory");
  return block.shared.get() + first;
}

void* dynamic_shared_memory(size_t alignment) {
  if (alignment > kMostAligned) fail("shared memory is never so aligned");
  if (dynamic_begin == 0) dynamic_begin = alignment;
  if (dynamic_begin != alignment) fail("dynamic shared memory is aligned in several ways");
  return running->block->shared.get() + dynamic_begin;
}

void* static_shared_memory(const void* key, size_t bytes, size_t alignment) {
  auto found = variables.find(key);
  if (found == variables.end()) {
    const size_t before = static_begin;
    static_begin = (static_begin - bytes) & ~(alignment - 1);
    const size_t used = kRegionBytes - static_begin;
    if (used > kStaticSharedBytes || used + grid.dynamic_bytes > kSharedBytes) {
      fail("more shared memory than a block may have");
    }
    for (auto& cluster : clusters) {
      for (Block& each : cluster->blocks) {
        if (each.shared) std::memset(each.shared.get() + static_begin, 0xff, before - static_begin);
      }
    }
    found = variables.emplace(key, static_begin).first;
  }
  return running->block->shared.get() + found->second;
}

void put_off(uint32_t address, Act act, bool keeps_block) {
  pending.push_back({&block_at(address), std::move(act), keeps_block});
}

void start(Queue queue, Act act) { own(queue).open.push_back(std::move(act)); }

void close_group(Queue queue) {
  own(queue).closed.push_back(std::move(own(queue).open));
  own(queue).open.clear();
}

void finish_groups(Queue queue, size_t left) {
  auto& closed = own(queue).closed;
  while (closed.size() > left) {
    for (const Act& act : closed.front()) act();
    closed.erase(closed.begin());
  }
}

void finish_all(Queue queue) {
  for (const Act& act : take_all(queue)) act();
}

std::vector<Act> take_all(Queue queue) {
  std::vector<Act> all;
  Groups& groups = own(queue);
  groups.closed.push_back(std::move(groups.open));
  for (auto& group : groups.closed) std::move(group.begin(), group.end(), std::back_inserter(all));
  groups = {};
  return all;
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

/// Another seed, another order of warps and copies; how many blocks run at once; after how many turns
/// of each warp in which none ends a run is taken for endless.
extern "C" void set_up(unsigned seed, unsigned blocks_at_once, unsigned patience) {
  fibers::generator.seed(seed);
  fibers::set_blocks_at_once(blocks_at_once);
  fibers::patience = patience;
}
