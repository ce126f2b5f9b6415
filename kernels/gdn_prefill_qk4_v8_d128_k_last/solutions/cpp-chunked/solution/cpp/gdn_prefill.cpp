// Gated DeltaNet prefill for CPUs: x86-64 and AArch64, g++ or clang++. Shapes: problem.h.
//
// Idea: sequences of at least RECURRENT_BELOW tokens run in chunks, where the delta rule becomes
// matrix products and one small triangular solve (chunked.h); shorter ones token by token
// (recurrent.h). Everything is float32. A task is a sequence and one or two value heads; threads
// take tasks, longest first.
//
// Bound: arithmetic. Per token and head 3 x 128 x 128 multiply-adds against the state and about
// 2 x CHUNK x 128 among the tokens of a chunk; the state is touched once per chunk.

#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "chunked.h"
#include "problem.h"
#include "recurrent.h"
#include "tunables.h"

namespace {

using tvm::ffi::Optional;
using tvm::ffi::TensorView;

// Working memory, kept per thread: its content never outlives a task.
template <typename T>
T& scratch() {
  thread_local std::unique_ptr<T> memory;
  if (!memory) memory = std::make_unique_for_overwrite<T>();
  return *memory;
}

void solve_task(const Problem& problem, const Task& task) {
  if (task.end == task.begin) {
    float* target = problem.new_state + state_at(task.sequence, task.head);
    std::fill_n(target, KOPT_HEADS_PER_TASK * kStateSize, 0.0f);  // whatever the old state was
  } else if (task.end - task.begin < kShort) {
    scratch<Recurrent>().run(problem, task);
  } else {
    scratch<Chunked>().run(problem, task);
  }
}

std::vector<Task> plan(const Problem& problem) {
  std::vector<Task> tasks;
  tasks.reserve(problem.sequences * (kValueHeads / KOPT_HEADS_PER_TASK));
  for (std::int64_t i = 0; i < problem.sequences; ++i) {
    for (int head = 0; head < kValueHeads; head += KOPT_HEADS_PER_TASK) {
      tasks.push_back({i, problem.cu_seqlens[i], problem.cu_seqlens[i + 1], head});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& x, const Task& y) {
    return x.end - x.begin > y.end - y.begin;
  });
  return tasks;
}

// All threads are joined before this returns, so nothing is written later.
void solve(const Problem& problem) {
  const std::vector<Task> tasks = plan(problem);
  std::atomic<std::size_t> next{0};
  const auto drain = [&] {
    for (;;) {
      const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= tasks.size()) return;
      solve_task(problem, tasks[index]);
    }
  };
  const std::int64_t wanted = problem.tokens / KOPT_TOKENS_PER_THREAD;
  const int threads = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, KOPT_THREADS));
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    try {
      others.emplace_back(drain);
    } catch (const std::system_error&) {
      break;  // at the limit of threads: those that run take all the work
    }
  }
  drain();
  for (std::thread& other : others) other.join();
}

constexpr DLDataType kBf16{kDLBfloat, 16, 1};
constexpr DLDataType kF32{kDLFloat, 32, 1};
constexpr DLDataType kI64{kDLInt, 64, 1};

// Data of a contiguous CPU tensor of that type and shape.
template <typename T>
T* data_of(const char* name, const TensorView& tensor, DLDataType dtype,
           std::initializer_list<std::int64_t> shape) {
  TVM_FFI_CHECK(tensor.device().device_type == kDLCPU, ValueError) << name << " is not on the CPU";
  const DLDataType actual = tensor.dtype();
  TVM_FFI_CHECK(actual.code == dtype.code && actual.bits == dtype.bits && actual.lanes == 1,
                TypeError)
      << name << " does not have elements of type "
      << (dtype.code == kDLBfloat ? "bfloat16" : dtype.code == kDLFloat ? "float32" : "int64");
  TVM_FFI_CHECK(std::equal(shape.begin(), shape.end(), tensor.shape().begin(),
                           tensor.shape().end()),
                ValueError)
      << name << " has the wrong shape " << tensor.shape();
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << name << " is not contiguous";
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

void check_lengths(const Problem& problem) {
  const std::int64_t* ends = problem.cu_seqlens;
  TVM_FFI_CHECK(ends[0] == 0 && ends[problem.sequences] == problem.tokens, ValueError)
      << "cu_seqlens runs from " << ends[0] << " to " << ends[problem.sequences]
      << " instead of from 0 to " << problem.tokens;
  TVM_FFI_CHECK(std::is_sorted(ends, ends + problem.sequences + 1), ValueError)
      << "cu_seqlens decreases";
}

void run(TensorView q, TensorView k, TensorView v, Optional<TensorView> state, TensorView A_log,
         TensorView a, TensorView dt_bias, TensorView b, TensorView cu_seqlens,
         Optional<double> scale, TensorView output, TensorView new_state) {
  TVM_FFI_CHECK(q.ndim() == 3, ValueError) << "q has " << q.ndim() << " dimensions instead of 3";
  TVM_FFI_CHECK(cu_seqlens.numel() >= 1, ValueError) << "cu_seqlens is empty";
  const std::int64_t T = q.size(0);
  const std::int64_t N = cu_seqlens.numel() - 1;
  constexpr int H = kValueHeads, Q = kKeyHeads, D = kWidth;
  Problem problem;
  problem.q = data_of<Bf16>("q", q, kBf16, {T, Q, D});
  problem.k = data_of<Bf16>("k", k, kBf16, {T, Q, D});
  problem.v = data_of<Bf16>("v", v, kBf16, {T, H, D});
  problem.state = nullptr;
  if (state.has_value()) problem.state = data_of<float>("state", *state, kF32, {N, H, D, D});
  problem.a_log = data_of<float>("A_log", A_log, kF32, {H});
  problem.a = data_of<Bf16>("a", a, kBf16, {T, H});
  problem.dt_bias = data_of<float>("dt_bias", dt_bias, kF32, {H});
  problem.b = data_of<Bf16>("b", b, kBf16, {T, H});
  problem.cu_seqlens = data_of<std::int64_t>("cu_seqlens", cu_seqlens, kI64, {N + 1});
  const float given = static_cast<float>(scale.value_or(0.0));
  problem.scale = given == 0.0f ? 1.0f / std::sqrt(static_cast<float>(D)) : given;
  problem.output = data_of<Bf16>("output", output, kBf16, {T, H, D});
  problem.new_state = data_of<float>("new_state", new_state, kF32, {N, H, D, D});
  problem.tokens = T;
  problem.sequences = N;
  check_lengths(problem);
  solve(problem);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
