// Threads of a grid as fibers of one thread of the CPU. See README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace fibers {

constexpr size_t kSharedBytes = 227 << 10;       // that a block may have on an H200 or a B200
constexpr size_t kStaticSharedBytes = 48 << 10;  // of them, in variables whose size is known
constexpr unsigned kMostThreads = 1024;          // of a block
constexpr unsigned kMostCluster = 16;            // blocks of a cluster

struct Grid {
  unsigned blocks = 1;  // of a row
  unsigned rows = 1;
  unsigned threads = 32;  // of a block, whole warps
  unsigned cluster = 1;   // neighbours of a row that share their memory
  size_t dynamic_bytes = 0;  // of shared memory
};

/// Runs a grid to its end. As many blocks are under way at once as `set_blocks_at_once` says, whole
/// clusters, and warps take turns in random order; a cluster that ends is followed by the next.
void run_grid(const Grid& grid, const std::function<void()>& kernel);

/// At least one cluster runs, whatever this says. 1 to begin with.
void set_blocks_at_once(unsigned count);
unsigned blocks_at_once();

unsigned thread();
unsigned block();
unsigned block_row();
unsigned blocks();
unsigned block_rows();
unsigned threads();  // of a block
unsigned cluster_size();
unsigned cluster_rank();

unsigned random_bits();
/// Something has happened that another thread may have waited for.
void progress();
/// Ends the process.
[[noreturn]] void fail(const char* what);

/// Lets other threads run.
void give_way();
void wait_while(bool (*waits)(const void*), const void* argument);
/// Lets other threads run until `come()`, which may be asked from anywhere.
template <class Come>
void wait_until(const Come& come) {
  if (come()) return;
  wait_while([](const void* it) { return !(*static_cast<const Come*>(it))(); }, &come);
}

/// All threads of the block, of the cluster, or `threads` threads of the block at barrier `index`
/// (1 to 15); counting is coming without waiting for the others.
void meet_block();
void meet_some(int index, int threads);
void count_some(int index, int threads);
void arrive_at_cluster();
void wait_for_cluster();
/// All 32 lanes of the warp come with an argument; `act` gets the 32 of them, once.
void meet_warp(void* argument, void (*act)(void** arguments));

/// An address in shared memory is a block's rank in its cluster, times 2^24, and a distance.
uint32_t shared_address(const void* pointer);
uint32_t address_in(unsigned rank, uint32_t address);
/// What is there, of the running thread's cluster.
char* shared_at(uint32_t address, size_t bytes, size_t alignment);
/// As aligned as it says, and no more.
void* dynamic_shared_memory(size_t alignment);
void* static_shared_memory(const void* key, size_t bytes, size_t alignment);

/// A variable in shared memory; `key` is one place for each such variable.
template <class T>
T& shared_variable(const void* key, size_t alignment = alignof(T)) {
  return *static_cast<T*>(static_shared_memory(key, sizeof(T), alignment));
}

using Act = std::function<void()>;

/// Done some time later, by nobody; `address` says in which block. That must not end before, or else
/// it waits.
void put_off(uint32_t address, Act act, bool keeps_block = false);

/// What the running thread has started and has to wait for: done no sooner than it does.
enum class Queue { kCopies, kProducts };
void start(Queue queue, Act act);
/// What was started since the last time is a group.
void close_group(Queue queue);
/// Waits until at most `left` groups are under way.
void finish_groups(Queue queue, size_t left);
void finish_all(Queue queue);
/// Somebody else will wait.
std::vector<Act> take_all(Queue queue);

/// Makes global memory known that kernels may read.
void allow_reads(const void* data, size_t bytes);
void forget_reads();
void check_read(const void* source, size_t bytes);

}  // namespace fibers
