// Threads of a cluster of blocks as fibers of one thread of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers {

constexpr size_t kSharedBytes = 227 << 10;  // that a block may have on an H200 or a B200
constexpr unsigned kMostBlocks = 16;        // of a cluster

/// Runs clusters one after the other; the warps of a cluster take turns in random order.
void run_grid(unsigned blocks, unsigned cluster, unsigned threads,
              const std::function<void()>& kernel);

unsigned thread();
unsigned block();
unsigned blocks();
/// Of the running thread's block, or of another one of its cluster.
char* shared_memory();
char* shared_memory(unsigned rank);
/// Where all of it starts and ends.
char* all_shared_memory();
[[noreturn]] void fail(const char* what);

void meet_block();
/// `threads` threads of the block come to meeting `index` (1 to 15).
void meet_some(int index, unsigned threads);
/// The same, without waiting for the others.
void count_some(int index, unsigned threads);
/// All 32 lanes of the warp come with an argument; `act` gets the 32 of them, once.
void meet_warp(void* argument, void (*act)(void** arguments));
/// All threads of the cluster arrive, and wait, once each in turn.
void arrive_at_cluster();
void wait_for_cluster();

/// Copies that the running thread has started: done when it says so.
void start_copy(void* target, const void* source, bool valid);
void end_group();
void wait_for_groups(size_t left);
void finish_copies();

/// Lets other threads run.
void give_way();
/// Something has happened that another thread may have waited for.
void progress();
unsigned random_bits();

/// Makes global memory known that copies may read.
void allow_reads(const void* data, size_t bytes);
void forget_reads();
void check_read(const void* source, size_t bytes);

}  // namespace fibers
