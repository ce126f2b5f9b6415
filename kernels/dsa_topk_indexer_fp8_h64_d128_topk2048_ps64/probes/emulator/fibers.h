// Threads of a cluster of blocks as fibers of one thread of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fibers {

constexpr size_t kSharedBytes = 227 << 10;  // that a block may have on an H200 or a B200

/// Runs clusters one after the other; the warps of a cluster in random order.
void run_grid(unsigned blocks, unsigned rows, unsigned threads, unsigned cluster,
              const std::function<void()>& kernel);

unsigned thread();
unsigned block();
unsigned block_row();
unsigned blocks();
unsigned block_rows();
unsigned cluster_size();
char* shared_memory(unsigned rank);
unsigned random_bits();

void give_way();
/// Something has happened that another thread may have waited for.
void progress();
[[noreturn]] void fail(const char* what);

void meet_block();
/// All 32 lanes of the warp come with an argument; `act` gets the 32 of them, once.
void meet_warp(void* argument, void (*act)(void** arguments));
void arrive_cluster();
void wait_cluster();

/// Done some time later.
void put_off(const std::function<void()>& act);

/// A word that arrives when the thread waits for its copies.
void copy_later(uint32_t* target, const uint32_t* source);
void finish_copies();

/// Makes global memory known that may be read.
void allow_reads(const void* data, size_t bytes);
void forget_reads();
void check_read(const void* source, size_t bytes);

}  // namespace fibers
