// CTAs one after another, each lane a fiber. See README.md.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "prefill_kernel.cuh"

Index threadIdx;
Index blockIdx;
Index gridDim;

namespace gdn {
constexpr std::size_t kSharedLimit = 232448;
alignas(128) uint8_t memory[kSharedLimit];
}  // namespace gdn

namespace {

constexpr int kRegisters = 6;  // that a lane brings to a meeting at most
constexpr int kStackBytes = 1 << 16;
constexpr int kPatience = 20000;  // turns without progress that mean a deadlock

struct Copy {
  uint32_t target;
  const void* source;
  bool real;
};

struct Lane {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(kStackBytes);
  std::vector<Copy> copies;
  uint32_t brought[2][kRegisters];  // two: a lane may be at the next meeting already
  int meeting = 0;
  bool done = false;
};

/// Lanes that wait for each other.
struct Meeting {
  int arrived = 0;
  long number = 0;
};

/// What the kernels see as 8 bytes of an mbarrier.
struct Barrier {
  uint16_t expected;
  uint16_t pending;
  uint32_t phase;
};

std::vector<Lane> lanes;
std::vector<Meeting> warps;
Meeting whole;
Meeting value_warps;
ucontext_t scheduler;
int current;  // lane
int alive;
long progress;
gdn::Params params;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::exit(1);
}

unsigned random_bits() {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<unsigned>(state >> 32);
}

void give_way() {
  const int lane = current;
  swapcontext(&lanes[lane].context, &scheduler);
}

void meet(Meeting& meeting, int count) {
  const long number = meeting.number;
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    ++meeting.number;
    ++progress;
    return;
  }
  while (meeting.number == number) give_way();
}

struct Brought {
  uint32_t of[32][kRegisters];
};

/// Everybody's registers in a meeting of the warp.
Brought exchange(std::initializer_list<uint32_t> registers) {
  Lane& own = lanes[current];
  own.meeting ^= 1;
  const int meeting = own.meeting;
  std::copy(registers.begin(), registers.end(), own.brought[meeting]);
  meet(warps[current / 32], 32);
  Brought all;
  for (int i = 0; i < 32; ++i) {
    const Lane& lane = lanes[current / 32 * 32 + i];
    std::copy_n(lane.brought[meeting], kRegisters, all.of[i]);
  }
  return all;
}

float half(uint32_t packed, int which) {
  return which == 0 ? gdn::low_bf16(packed) : gdn::high_bf16(packed);
}

Barrier& barrier_at(uint32_t address) {
  return *reinterpret_cast<Barrier*>(gdn::memory + address);
}

template <typename T>
T shared_at(uint32_t address) {
  T value;
  std::memcpy(&value, gdn::memory + address, sizeof(T));
  return value;
}

}  // namespace

void __syncwarp() { meet(warps[current / 32], 32); }
void __syncthreads() { meet(whole, static_cast<int>(lanes.size())); }

uint32_t value_of_lane(uint32_t value, int lane) { return exchange({value}).of[lane][0]; }

namespace gdn {

void sync_value_warps() { meet(value_warps, 128); }

void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Brought all = exchange({a[0], a[1], a[2], a[3], b0, b1});
  const int lane = current % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8;
    const int column = lane % 4 * 2 + i % 2;
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = all.of[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8];
      const uint32_t right = all.of[column * 4 + k % 8 / 2][4 + k / 8];
      sum += half(left, k % 2) * half(right, k % 2);
    }
    d[i] += sum;
  }
}

void load_matrices(uint32_t (&m)[4], uint32_t address) {
  if (address % 16 != 0) fail("row of a matrix not aligned");
  const Brought all = exchange({address});
  const int lane = current % 32;
  for (int i = 0; i < 4; ++i) {
    m[i] = shared_at<uint32_t>(all.of[i * 8 + lane / 4][0] + lane % 4 * 4);
  }
}

void load_transposed(uint32_t (&m)[4], uint32_t address) {
  if (address % 16 != 0) fail("row of a matrix not aligned");
  const Brought all = exchange({address});
  const int lane = current % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = i * 8 + lane % 4 * 2;
    const uint32_t low = shared_at<uint16_t>(all.of[row][0] + lane / 4 * 2);
    const uint32_t high = shared_at<uint16_t>(all.of[row + 1][0] + lane / 4 * 2);
    m[i] = low | high << 16;
  }
}

uint32_t transpose(uint32_t matrix) {
  const Brought all = exchange({matrix});
  const int lane = current % 32;
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    const uint32_t packed = all.of[(lane % 4 * 2 + i) * 4 + lane / 8][0];
    result |= (packed >> lane / 4 % 2 * 16 & 0xffff) << i * 16;
  }
  return result;
}

void copy_16(uint32_t target, const void* source, bool real) {
  if (target % 16 != 0) fail("copy not aligned");
  lanes[current].copies.push_back({target, source, real});
}

void copies_arrive(uint32_t barrier) {
  for (unsigned turns = random_bits() % 40; turns > 0; --turns) give_way();
  for (const Copy& copy : lanes[current].copies) {
    if (copy.real) {
      std::memcpy(memory + copy.target, copy.source, 16);
    } else {
      std::memset(memory + copy.target, 0, 16);
    }
  }
  lanes[current].copies.clear();
  barrier_arrive(barrier);
}

void barrier_init(uint32_t barrier, uint32_t arrivals) {
  const auto count = static_cast<uint16_t>(arrivals);
  barrier_at(barrier) = {count, count, 0};
}

void barrier_arrive(uint32_t barrier) {
  Barrier& it = barrier_at(barrier);
  if (it.pending == 0 || it.pending > it.expected) fail("arrival at no barrier");
  if (--it.pending == 0) {
    it.pending = it.expected;
    ++it.phase;
    ++progress;
  }
}

void barrier_wait(uint32_t barrier, uint32_t parity) {
  while ((barrier_at(barrier).phase & 1) == parity) give_way();
}

}  // namespace gdn

namespace {

using gdn::kHeads;
using gdn::kWidth;
#ifdef VALUE_WARPS  // cuda-fused
using RolesT = gdn::Roles<VALUE_WARPS, KEY_WARPS>;
using SharedT = gdn::Shared<VALUE_WARPS, KEY_WARPS>;
constexpr int kSlices = kWidth / (VALUE_WARPS * gdn::kRows);
constexpr auto kernel = gdn::prefill<VALUE_WARPS, KEY_WARPS>;
#else  // cuda-columns
using RolesT = gdn::SHAPE;
using SharedT = gdn::Shared<gdn::SHAPE>;
constexpr int kSlices = RolesT::kSlices;
constexpr auto kernel = gdn::prefill<gdn::SHAPE>;
#endif
constexpr int kThreads = RolesT::kWarps * 32;
static_assert(sizeof(SharedT) <= gdn::kSharedLimit);

void run_lane() {
  kernel(params);
  lanes[current].done = true;
  ++progress;
  --alive;
}

void start(Lane& lane) {
  lane.done = false;
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack.data();
  lane.context.uc_stack.ss_size = lane.stack.size();
  lane.context.uc_link = &scheduler;
  makecontext(&lane.context, run_lane, 0);
}

void run_block() {
  std::memset(gdn::memory, 0xff, sizeof(gdn::memory));
  warps.assign(RolesT::kWarps, {});
  whole = {};
  value_warps = {};
  alive = kThreads;
  for (Lane& lane : lanes) start(lane);
  long before = -1;
  int idle = 0;
  while (alive > 0) {
    const int first = random_bits() % RolesT::kWarps * 32;
    for (int i = first; i < first + 32; ++i) {
      if (lanes[i].done) continue;
      current = i;
      threadIdx.x = i;
      swapcontext(&scheduler, &lanes[i].context);
    }
    idle = progress == before ? idle + 1 : 0;
    before = progress;
    if (idle > kPatience) fail("deadlock");
  }
  for (const Lane& lane : lanes) {
    if (!lane.copies.empty()) fail("copies that nobody waits for");
  }
}

}  // namespace

/// Pointers in the order of the definition's inputs (without scale) and outputs.
extern "C" void run(void** pointers, int tokens, int sequences, float scale) {
  using Bf16 = const __nv_bfloat16*;
  using F32 = const float*;
  params = {static_cast<Bf16>(pointers[0]),
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
            tokens,
            sequences,
            scale};
  lanes.resize(kThreads);
  gridDim.x = sequences * kHeads * kSlices;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block();
}
