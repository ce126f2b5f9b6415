// Stands in for the solution's wgmma.cuh: the same functions on a CPU, where they are asked for.
#pragma once

#include "emulated.h"
#include "tunables.h"

#define TOPK_WARPGROUPS EMULATED_WARPGROUPS

namespace topk {

inline uint64_t factor_at(uint32_t address) { return emulated::rows_at(address); }

inline void multiply(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  emulated::multiply_group<emulated::Half>(c, a, b, add);
}

inline void groups_begin() { emulated::products_begin(); }
inline void groups_commit() { emulated::products_commit(); }
inline void groups_wait(float (&)[32]) { emulated::products_wait<0>(); }

}  // namespace topk
