// What is under way: threads, warps, blocks and clusters of a launch, and who of them runs.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "context.h"
#include "fibers.h"

namespace fibers {

constexpr unsigned kWarp = 32;
constexpr size_t kMostAligned = 1024;
constexpr size_t kRegionBytes = kMostAligned + kSharedBytes;

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

/// Of the launch.
struct State {
  Grid grid;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<Warp> warps;  // that have not ended
  std::vector<PutOff> pending;
  std::map<const void*, size_t> variables;  // how far into shared memory
  size_t dynamic_begin;
  size_t static_begin;
  Fiber* running = nullptr;
};
inline State state;

inline Groups& own(Queue queue) { return state.running->queues[static_cast<int>(queue)]; }

}  // namespace fibers
