// Calls cuda-split on a CPU.
#include <vector>

#include "fibers.h"
#include "launch.cuh"

/// Pointers in the order of the definition's inputs (without sm_scale) and outputs. Returns
/// whether the launches succeeded. `processors` is how many blocks run at once.
extern "C" int run(void** pointers, int64_t tokens, int64_t cached, float sm_scale,
                   int processors) {
  using namespace dsa;
  using Bf16 = const __nv_bfloat16*;
  fibers::forget_reads();
  fibers::allow_reads(pointers[0], tokens * kHeads * kLatent * 2);
  fibers::allow_reads(pointers[1], tokens * kHeads * kRope * 2);
  fibers::allow_reads(pointers[2], cached * kLatent * 2);
  fibers::allow_reads(pointers[3], cached * kRope * 2);
  fibers::allow_reads(pointers[4], tokens * kPlaces * 4);
  Problem problem{};
  problem.q_nope = static_cast<Bf16>(pointers[0]);
  problem.q_pe = static_cast<Bf16>(pointers[1]);
  problem.ckv = static_cast<Bf16>(pointers[2]);
  problem.kpe = static_cast<Bf16>(pointers[3]);
  problem.selected = static_cast<const int32_t*>(pointers[4]);
  problem.output = static_cast<__nv_bfloat16*>(pointers[5]);
  problem.lse = static_cast<float*>(pointers[6]);
  problem.factor = sm_scale * 1.44269504f;
  problem.tokens = tokens;
  std::vector<char> scratch(scratch_bytes(processors), '\xff');
  const bool launched = launch(problem, scratch.data(), processors, nullptr) == cudaSuccess;
  for (const char byte : scratch) {
    if (byte != '\xff') fibers::fail("scratch memory is not as it was");
  }
  return launched;
}
