// Barriers of the hardware that have numbers, and those that lie in shared memory.
#pragma once

#include "memory.h"

namespace emulated {

inline void warps_meet(int index, int threads) { fibers::meet_some(index, threads); }
inline void warps_arrive(int index, int threads) { fibers::count_some(index, threads); }

inline void cluster_arrive() { fibers::arrive_at_cluster(); }
inline void cluster_wait() { fibers::wait_for_cluster(); }
inline void cluster_meet() {
  cluster_arrive();
  cluster_wait();
}

/// What kernels see as the 8 bytes of an mbarrier; shared memory starts as no barrier at all.
struct Barrier {
  static constexpr uint32_t kMostBytes = (1 << 20) - 1;

  uint64_t expected : 12;  // arrivals of a phase
  uint64_t missing : 12;   // of this one
  int64_t bytes : 32;      // that copies have yet to report
  uint64_t phase : 8;

  void arrive() {
    if (missing == 0) fibers::fail("more arrivals than a barrier waits for");
    --missing;
    end_phase();
  }

  void report(int64_t count) {
    bytes -= count;
    end_phase();
  }

  void end_phase() {
    fibers::progress();
    if (missing != 0 || bytes != 0) return;
    missing = expected;
    phase ^= 1;
  }
};
static_assert(sizeof(Barrier) == 8);

inline Barrier& barrier_at(uint32_t address) {
  auto& barrier = *reinterpret_cast<Barrier*>(fibers::shared_at(address, 8, 8));
  if (barrier.expected == 0 || barrier.expected > 1024) fibers::fail("no barrier there");
  return barrier;
}

inline void barrier_init(uint32_t address, uint32_t count) {
  auto& barrier = *reinterpret_cast<Barrier*>(fibers::shared_at(address, 8, 8));
  barrier = {count, count, 0, 0};
}
inline void barriers_visible() {}

inline void barrier_arrive(uint32_t address) { barrier_at(address).arrive(); }

/// Arrives, and `bytes` of copies are to come.
inline void barrier_expect(uint32_t address, uint32_t bytes) {
  Barrier& barrier = barrier_at(address);
  if (barrier.bytes > 0) fibers::fail("bytes of two phases");
  if (bytes > Barrier::kMostBytes) fibers::fail("more bytes than a barrier counts");
  barrier.bytes += bytes;
  barrier.arrive();
}

/// Copies that the thread has started arrive some time, all before the barrier knows.
inline void barrier_arrive_after_copies(uint32_t address) {
  auto acts = fibers::take_all(fibers::Queue::kCopies);
  Barrier& barrier = barrier_at(address);
  const auto arrive = [acts = std::move(acts), &barrier] {
    for (const fibers::Act& act : acts) act();
    barrier.arrive();
  };
  fibers::put_off(address, arrive, true);
}

inline bool barrier_test(uint32_t address, uint32_t parity) {
  return barrier_at(address).phase != (parity & 1);
}

inline void barrier_wait(uint32_t address, uint32_t parity) {
  fibers::wait_until([=] { return barrier_test(address, parity); });
}

}  // namespace emulated
