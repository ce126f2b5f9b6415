// Copies that a thread starts and waits for, and stores into other blocks.
#pragma once

#include "barriers.h"

namespace emulated {

inline void require_aligned(const void* place, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(place) % alignment != 0) fibers::fail("misaligned copy");
}

/// Done no sooner than somebody waits; zeros where there is nothing to copy.
inline void copy_some(uint32_t target, const void* source, size_t bytes, bool valid) {
  require_aligned(source, bytes);
  if (valid) fibers::check_read(source, bytes);
  char* const there = fibers::shared_at(target, bytes, bytes);
  fibers::start(fibers::Queue::kCopies, [=] {
    if (valid) {
      memcpy(there, source, bytes);
    } else {
      memset(there, 0, bytes);
    }
  });
}

inline void copy_async(uint32_t target, const void* source, bool valid = true) {
  copy_some(target, source, 16, valid);
}
inline void copy_async_word(uint32_t target, const void* source) {
  copy_some(target, source, 4, true);
}
inline void copy_async_wait_all() { fibers::finish_all(fibers::Queue::kCopies); }

/// Bytes that the same block expects: never more than that.
inline void report_expected(Barrier& barrier, uint32_t bytes) {
  if (barrier.bytes < bytes) fibers::fail("more bytes than expected");
  barrier.report(bytes);
}

/// Arrives some time.
inline void copy_bulk(uint32_t target, const void* source, uint32_t bytes, uint32_t barrier) {
  if (bytes % 16 != 0) fibers::fail("bytes of a bulk copy");
  require_aligned(source, 16);
  fibers::check_read(source, bytes);
  Barrier& told = barrier_at(barrier);
  char* const there = fibers::shared_at(target, bytes, 16);
  fibers::put_off(target, [=, &told] {
    memcpy(there, source, bytes);
    report_expected(told, bytes);
  });
}

/// Done at once.
inline void store_bulk(void* target, uint32_t source, uint32_t bytes) {
  if (bytes % 16 != 0) fibers::fail("bytes of a bulk store");
  require_aligned(target, 16);
  memcpy(target, fibers::shared_at(source, bytes, 16), bytes);
}
inline void stores_wait() {}
inline void stores_read() {}

/// Where another block of the cluster has what is at `address` here.
inline uint32_t address_in(unsigned rank, uint32_t address) {
  return fibers::address_in(rank, address);
}

inline void store_in_cluster(unsigned rank, uint32_t address, uint32_t x) {
  stored(address_in(rank, address), x);
}

/// Arrives some time, and reports its bytes to a barrier of the block that gets it.
inline void send_float(uint32_t address, float x, uint32_t barrier) {
  char* const there = fibers::shared_at(address, 4, 4);
  Barrier& told = barrier_at(barrier);
  fibers::put_off(address, [=, &told] {
    memcpy(there, &x, 4);
    told.report(4);
  });
}

}  // namespace emulated
