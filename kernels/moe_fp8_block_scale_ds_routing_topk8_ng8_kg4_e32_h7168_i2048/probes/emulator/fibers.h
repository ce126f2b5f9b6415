// Threads of a block as fibers of one thread of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers {

constexpr size_t kSharedBytes = 227 << 10;  // that a block may have on an H200 or a B200

/// Runs blocks one after the other; within a block, warps in random order.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel);

unsigned thread();
unsigned block();
unsigned blocks();
void* dynamic_shared_memory();
unsigned random_bits();

/// Lets other threads run.
void give_way();
/// Something has happened that another thread may have waited for.
void progress();
[[noreturn]] void fail(const char* what);

void meet_block();
/// `threads` threads come to meeting `index` (1 to 15).
void meet_some(int index, int threads);
/// The same, without waiting for the others.
void count_some(int index, int threads);
/// All 32 lanes of the warp come with an argument; `act` gets the 32 of them, once.
void meet_warp(void* argument, void (*act)(void** arguments));

/// Copies that the running thread has started: done when it says so.
void start_copy(void* target, const void* source, bool valid, int bytes);
void finish_copies();

/// Makes global memory known that copies may read.
void allow_reads(const void* data, size_t bytes);
void forget_reads();
void check_read(const void* source, size_t bytes);

}  // namespace fibers
