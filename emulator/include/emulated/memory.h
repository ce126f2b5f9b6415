// Shared memory by its addresses, of the block and of the others in its cluster.
#pragma once

#include "../cuda_runtime.h"

namespace emulated {

constexpr unsigned kAllLanes = 0xffffffffu;

/// Dynamic shared memory that is declared outside of functions.
template <class T, size_t kAlignment>
struct DynamicShared {
  operator T*() const { return static_cast<T*>(fibers::dynamic_shared_memory(kAlignment)); }
};

inline uint32_t shared_address(const void* pointer) { return fibers::shared_address(pointer); }

template <class T>
T loaded(uint32_t address) {
  T x;
  memcpy(&x, fibers::shared_at(address, sizeof(T), sizeof(T)), sizeof(T));
  return x;
}

template <class T>
void stored(uint32_t address, T x) {
  memcpy(fibers::shared_at(address, sizeof(T), sizeof(T)), &x, sizeof(T));
}

inline float load_shared_float(uint32_t address) { return loaded<float>(address); }
inline float2 load_shared_pair(uint32_t address) { return loaded<float2>(address); }
inline uint32_t load_shared_word(uint32_t address) { return loaded<uint32_t>(address); }
inline void store_shared_float(uint32_t address, float x) { stored(address, x); }
inline void store_shared_pair(uint32_t address, float x, float y) { stored(address, float2{x, y}); }
inline void store_shared_word(uint32_t address, uint32_t x) { stored(address, x); }
inline void store_shared_byte(uint32_t address, uint32_t x) {
  stored(address, static_cast<uint8_t>(x));
}

/// The swizzle of rows of 128 bytes: 16-byte piece p of a row is at p ^ row % 8.
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 3 & 0x70); }

inline void order_before_async() {}

inline void prefetch(const void* source, size_t bytes) { fibers::check_read(source, bytes); }

// Launches follow one another here.
inline void release_next_kernel() {}
inline void wait_for_previous_kernel() {}

/// `x`, which all lanes must have.
inline int uniform(int x) {
  if (__shfl_sync(kAllLanes, x, 0) != x) fibers::fail("lanes differ");
  return x;
}

// How many registers a thread may have means nothing here.
template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void drop_registers() {}

}  // namespace emulated
