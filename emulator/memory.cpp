// Shared memory and what is copied into it. See README.md.
#include <cstring>
#include <iterator>

#include "state.h"

namespace fibers {
namespace {

constexpr unsigned kRankShift = 24;

std::vector<std::pair<const char*, size_t>> readable;

Block& block_at(uint32_t address) {
  const unsigned rank = address >> kRankShift;
  if (rank >= state.grid.cluster) fail("no block of the cluster has such an address");
  Block& block = state.running->block->cluster->blocks[rank];
  if (block.left == 0) fail("shared memory of a block that has ended");
  return block;
}

}  // namespace

uint32_t shared_address(const void* pointer) {
  const auto distance = static_cast<const char*>(pointer) - state.running->block->shared.get();
  if (distance < 0 || distance > static_cast<ptrdiff_t>(kRegionBytes)) {
    fail("not an address in the block's shared memory");
  }
  return address_in(state.running->block->rank, static_cast<uint32_t>(distance));
}

uint32_t address_in(unsigned rank, uint32_t address) {
  return (address & ((1u << kRankShift) - 1)) | rank << kRankShift;
}

char* shared_at(uint32_t address, size_t bytes, size_t alignment) {
  Block& block = block_at(address);
  const size_t first = address & ((1u << kRankShift) - 1);
  if (first % alignment != 0) fail("misaligned access to shared memory");
  const bool dynamic = first >= state.dynamic_begin && first + bytes <= state.dynamic_begin + state.grid.dynamic_bytes;
  const bool fixed = first >= state.static_begin && first + bytes <= kRegionBytes;
  if (!dynamic && !fixed) fail("access beyond shared memory");
  return block.shared.get() + first;
}

void* dynamic_shared_memory(size_t alignment) {
  if (alignment > kMostAligned) fail("shared memory is never so aligned");
  if (state.dynamic_begin == 0) state.dynamic_begin = alignment;
  if (state.dynamic_begin != alignment) fail("dynamic shared memory is aligned in several ways");
  return state.running->block->shared.get() + state.dynamic_begin;
}

void* static_shared_memory(const void* key, size_t bytes, size_t alignment) {
  auto found = state.variables.find(key);
  if (found == state.variables.end()) {
    const size_t before = state.static_begin;
    state.static_begin = (state.static_begin - bytes) & ~(alignment - 1);
    const size_t used = kRegionBytes - state.static_begin;
    if (used > kStaticSharedBytes || used + state.grid.dynamic_bytes > kSharedBytes) {
      fail("more shared memory than a block may have");
    }
    for (auto& cluster : state.clusters) {
      for (Block& each : cluster->blocks) {
        if (each.shared) std::memset(each.shared.get() + state.static_begin, 0xff, before - state.static_begin);
      }
    }
    found = state.variables.emplace(key, state.static_begin).first;
  }
  return state.running->block->shared.get() + found->second;
}

void put_off(uint32_t address, Act act, bool keeps_block) {
  state.pending.push_back({&block_at(address), std::move(act), keeps_block});
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
