// Calls cuda-prefill on a CPU.
#include <vector>

#include "dispatch.cuh"
#include "fibers.h"

namespace {

void allow_reads(const gdn::Problem& problem, const std::vector<char>& workspace) {
  using namespace gdn;
  const auto tokens = static_cast<size_t>(problem.tokens);
  const auto sequences = static_cast<size_t>(problem.sequences);
  fibers::forget_reads();
  fibers::allow_reads(problem.q, tokens * kQkHeads * kWidth * 2);
  fibers::allow_reads(problem.k, tokens * kQkHeads * kWidth * 2);
  fibers::allow_reads(problem.v, tokens * kHeads * kWidth * 2);
  fibers::allow_reads(problem.state, sequences * kHeads * kWidth * kWidth * 4);
  fibers::allow_reads(problem.A_log, kHeads * 4);
  fibers::allow_reads(problem.a, tokens * kHeads * 2);
  fibers::allow_reads(problem.dt_bias, kHeads * 4);
  fibers::allow_reads(problem.b, tokens * kHeads * 2);
  fibers::allow_reads(problem.cu_seqlens, (sequences + 1) * 8);
  fibers::allow_reads(workspace.data(), workspace.size());
}

}  // namespace

/// Pointers in the order of the definition's inputs (without scale) and outputs. `part` is a value
/// of gdn::Part, or negative for the one that serves such a call; `processors` is how many
/// multiprocessors share the work. Returns the part, or -1 where a launch fails.
extern "C" int run(void** pointers, int tokens, int sequences, float scale, int part,
                   int processors) {
  using Bf16 = const __nv_bfloat16*;
  using F32 = const float*;
  const gdn::Problem problem{static_cast<Bf16>(pointers[0]),
                             static_cast<Bf16>(pointers[1]),
                             static_cast<Bf16>(pointers[2]),
                             static_cast<F32>(pointers[3]),
                             static_cast<F32>(pointers[4]),
                             static_cast<Bf16>(pointers[5]),
                             static_cast<F32>(pointers[6]),
                             static_cast<Bf16>(pointers[7]),
                             static_cast<const int64_t*>(pointers[8]),
                             static_cast<__nv_bfloat16*>(pointers[9]),
                             static_cast<float*>(pointers[10]),
                             scale,
                             tokens,
                             sequences};
  const gdn::Part chosen =
      part < 0 ? gdn::part_for(tokens, sequences, true) : static_cast<gdn::Part>(part);
  std::vector<char> workspace(gdn::workspace_bytes(chosen, problem) + 16, '\xff');
  allow_reads(problem, workspace);
  const size_t skip = -reinterpret_cast<uintptr_t>(workspace.data()) % 16;
  const size_t zeros = gdn::zero_bytes(chosen);
  memset(workspace.data() + skip, 0, zeros);
  const cudaError_t status =
      gdn::launch(chosen, problem, workspace.data() + skip, processors, nullptr);
  for (size_t i = 0; i < zeros; ++i) {
    if (workspace[skip + i] != 0) fibers::fail("scratch memory is not zero where it should be");
  }
  return status == cudaSuccess ? static_cast<int>(chosen) : -1;
}

/// Which part serves calls of such extents, a value of gdn::Part.
extern "C" int part_for(int tokens, int sequences) {
  return static_cast<int>(gdn::part_for(tokens, sequences, true));
}
