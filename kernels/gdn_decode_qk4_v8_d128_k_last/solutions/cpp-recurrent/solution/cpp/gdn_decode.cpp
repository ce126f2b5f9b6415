// Gated DeltaNet decoding step for CPUs: x86-64 and AArch64, g++ or clang++.
//
// Shapes (B batch, 4 query/key heads, H = 8 value heads, V = K = 128):
//   q, k (B, 1, 4, K) bf16; v, output (B, 1, H, V) bf16; a, b (B, 1, H) bf16;
//   A_log, dt_bias (H) f32; state, new_state (B, H, V, K) f32.
//
// Idea: with S the old state of a head, g its decay and beta its write strength,
//   delta  = beta (v - g S k)
//   S'     = g S + delta k^T
//   output = scale (g S q + (q.k) delta)
// so both dots run on the old state. A block of ROWS rows is read once from memory, reduced
// against k and q together, and rewritten while it is still in L1: one read and one write of the
// state is all the traffic.
//
// Bound: memory. 128 KiB move per state, for 7 operations per 8 bytes.

#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "tunables.h"
#include "vectors.h"

namespace {

using tvm::ffi::Optional;
using tvm::ffi::TensorView;

constexpr int kKeyHeads = 4;
constexpr int kValueHeads = 8;
constexpr int kWidth = 128;  // V and K
constexpr std::int64_t kStateSize = kWidth * kWidth;
constexpr int kRows = KOPT_ROWS;
constexpr int kVectors = kWidth / kLanes;  // per row

static_assert(kWidth % kRows == 0 && kWidth % kLanes == 0);

struct Problem {
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  const float* state;  // null stands for zeros
  const float* a_log;
  const Bf16* a;
  const float* dt_bias;
  const Bf16* b;
  float scale;
  Bf16* output;
  float* new_state;
  std::int64_t states;  // B * H
  bool streams;         // the new state bypasses the caches
};

// What one head needs besides its state.
struct Head {
  alignas(64) float q[kWidth];
  alignas(64) float k[kWidth];
  float decay;      // g
  float beta;
  float scale;
  float q_dot_k;
};

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

Head prepare(const Problem& problem, std::int64_t index) {
  const std::int64_t batch = index / kValueHeads;
  const std::int64_t head = index % kValueHeads;
  const std::int64_t key_head = batch * kKeyHeads + head / (kValueHeads / kKeyHeads);
  Head result;
  float q_dot_k = 0.0f;
  for (int i = 0; i < kWidth; ++i) {
    result.q[i] = from_bf16(problem.q[key_head * kWidth + i]);
    result.k[i] = from_bf16(problem.k[key_head * kWidth + i]);
    q_dot_k += result.q[i] * result.k[i];
  }
  const float step = from_bf16(problem.a[index]) + problem.dt_bias[head];
  const double rate = std::exp(static_cast<double>(problem.a_log[head]));
  result.decay = static_cast<float>(std::exp(-rate * softplus(step)));
  result.beta = static_cast<float>(1.0 / (1.0 + std::exp(-double{from_bf16(problem.b[index])})));
  result.scale = problem.scale;
  result.q_dot_k = q_dot_k;
  return result;
}

template <bool kStreams>
KOPT_INLINE void write(float* target, const Vec& value) {
  if constexpr (kStreams && kCanStream) {
    stream(target, value);
  } else {
    store(target, value);
  }
}

// kRows rows: `old_state` is null for a state of zeros.
template <bool kStreams, bool kHasState>
KOPT_INLINE void advance(const Head& head, const float* old_state, const Bf16* v, Bf16* output,
                         float* new_state) {
  float along_k[kRows] = {};
  float along_q[kRows] = {};
  if constexpr (kHasState) {
    Vec sum_k[kRows] = {};
    Vec sum_q[kRows] = {};
    for (int c = 0; c < kVectors; ++c) {
      const Vec k = load(head.k + c * kLanes);
      const Vec q = load(head.q + c * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vec row = load(old_state + r * kWidth + c * kLanes);
        sum_k[r] += row * k;
        sum_q[r] += row * q;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      along_k[r] = sum<kLanes>(sum_k[r]);
      along_q[r] = sum<kLanes>(sum_q[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float delta = head.beta * (from_bf16(v[r]) - head.decay * along_k[r]);
    output[r] = to_bf16(head.scale * (head.decay * along_q[r] + head.q_dot_k * delta));
    for (int c = 0; c < kVectors; ++c) {
      const std::int64_t at = r * kWidth + c * kLanes;
      Vec row = load(head.k + c * kLanes) * delta;
      if constexpr (kHasState) row += load(old_state + at) * head.decay;
      write<kStreams>(new_state + at, row);
    }
  }
}

template <bool kStreams, bool kHasState>
void step(const Problem& problem, std::int64_t index) {
  const Head head = prepare(problem, index);
  const float* old_state = kHasState ? problem.state + index * kStateSize : nullptr;
  const std::int64_t row = index * kWidth;
  for (int r = 0; r < kWidth; r += kRows) {
    const float* block = nullptr;
    if constexpr (kHasState) {
      block = old_state + r * kWidth;
      if constexpr (KOPT_PREFETCH_ROWS > 0) {
        const auto* ahead = reinterpret_cast<const char*>(block + KOPT_PREFETCH_ROWS * kWidth);
        for (std::size_t line = 0; line < kRows * kWidth * sizeof(float); line += 64) {
          __builtin_prefetch(ahead + line);  // past the last state it is dropped, not a fault
        }
      }
    }
    advance<kStreams, kHasState>(head, block, problem.v + row + r, problem.output + row + r,
                                 problem.new_state + index * kStateSize + r * kWidth);
  }
}

// Takes states until none is left; several threads may do so at once.
void drain(const Problem& problem, std::atomic<std::int64_t>& next) {
  for (;;) {
    const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= problem.states) break;
    if (problem.state == nullptr) {
      problem.streams ? step<true, false>(problem, index) : step<false, false>(problem, index);
    } else {
      problem.streams ? step<true, true>(problem, index) : step<false, true>(problem, index);
    }
  }
  if (problem.streams) finish_streams();
}

// All threads are joined before this returns, so nothing is written later.
void solve(const Problem& problem) {
  const std::int64_t wanted = problem.states / KOPT_STATES_PER_THREAD;
  const int threads = static_cast<int>(std::clamp<std::int64_t>(wanted, 1, KOPT_THREADS));
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    try {
      others.emplace_back([&] { drain(problem, next); });
    } catch (const std::system_error&) {
      break;  // at the limit of threads: those that run take all the work
    }
  }
  drain(problem, next);
  for (std::thread& other : others) other.join();
}

// Data of a contiguous CPU tensor of that type and shape.
template <typename T>
T* data_of(const char* name, const TensorView& tensor, DLDataType dtype,
           std::initializer_list<std::int64_t> shape) {
  TVM_FFI_CHECK(tensor.device().device_type == kDLCPU, ValueError) << name << " is not on the CPU";
  const DLDataType actual = tensor.dtype();
  TVM_FFI_CHECK(actual.code == dtype.code && actual.bits == dtype.bits && actual.lanes == 1,
                TypeError)
      << name << " does not have " << static_cast<int>(dtype.bits) << "-bit "
      << (dtype.code == kDLBfloat ? "bfloat" : "float") << " elements";
  TVM_FFI_CHECK(std::equal(shape.begin(), shape.end(), tensor.shape().begin(),
                           tensor.shape().end()),
                ValueError)
      << name << " has the wrong shape " << tensor.shape();
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << name << " is not contiguous";
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

constexpr DLDataType kBf16{kDLBfloat, 16, 1};
constexpr DLDataType kF32{kDLFloat, 32, 1};

void run(TensorView q, TensorView k, TensorView v, Optional<TensorView> state, TensorView A_log,
         TensorView a, TensorView dt_bias, TensorView b, Optional<double> scale, TensorView output,
         TensorView new_state) {
  TVM_FFI_CHECK(q.ndim() == 4, ValueError) << "q has " << q.ndim() << " dimensions instead of 4";
  const std::int64_t B = q.size(0);
  constexpr int H = kValueHeads, Q = kKeyHeads, D = kWidth;
  Problem problem;
  problem.q = data_of<Bf16>("q", q, kBf16, {B, 1, Q, D});
  problem.k = data_of<Bf16>("k", k, kBf16, {B, 1, Q, D});
  problem.v = data_of<Bf16>("v", v, kBf16, {B, 1, H, D});
  problem.state = nullptr;
  if (state.has_value()) problem.state = data_of<float>("state", *state, kF32, {B, H, D, D});
  problem.a_log = data_of<float>("A_log", A_log, kF32, {H});
  problem.a = data_of<Bf16>("a", a, kBf16, {B, 1, H});
  problem.dt_bias = data_of<float>("dt_bias", dt_bias, kF32, {H});
  problem.b = data_of<Bf16>("b", b, kBf16, {B, 1, H});
  const float given = static_cast<float>(scale.value_or(0.0));
  problem.scale = given == 0.0f ? 1.0f / std::sqrt(static_cast<float>(D)) : given;
  problem.output = data_of<Bf16>("output", output, kBf16, {B, 1, H, D});
  problem.new_state = data_of<float>("new_state", new_state, kF32, {B, H, D, D});
  problem.states = B * H;
  const bool aligned = reinterpret_cast<std::uintptr_t>(problem.new_state) % sizeof(Vec) == 0;
  problem.streams = KOPT_NT_STORES && kCanStream && aligned;
  solve(problem);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
