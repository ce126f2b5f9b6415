// The 2048 highest of n > 2048 scores, exactly, by one block.
//
// Scores are counted in bins of equal width between bounds, beyond which the outer bins lie: the map
// is monotone in float32, so every score of a higher bin is at least as high. Bins above the one in
// which the cut falls are taken whole; of that bin, which holds a few scores as a rule, each is
// compared with each. Where it holds more (ties, clusters, outliers), it is divided again, by the
// bits of score and place together: they differ for all tokens, and each division narrows their
// range 2^9 times or more. So the set is exact and always the same: of equal scores the earlier
// tokens are taken.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace topk {

constexpr int kBins = 4 * kThreads;
constexpr int kCompared = 512;  // most scores that are compared with each other
constexpr int kQuads = 3;       // of scores that a thread keeps in registers
constexpr int kHeld = 4 * kQuads * kThreads;

struct alignas(16) Selection {
  uint32_t bins[kBins + 32];  // counts, then how many scores lie in higher bins; and for no scores
  int places[kSelected + 32];
  uint64_t compared[kCompared];
  uint32_t of_warps[kWarps];
  uint32_t lowest[kWarps], highest[kWarps];
  uint64_t low, high;  // of the bin to be divided
  int cut_bin, above, inside;
  int found;
};

/// A key with the same order as floats.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float from_ordered(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/// Keys of score and token; earlier tokens are higher among equal scores.
__device__ __forceinline__ uint64_t combined(float score, int token) {
  return static_cast<uint64_t>(ordered(score)) << 32 | static_cast<uint32_t>(~token);
}

/// Equally wide bins of scores; all in one where there are no bounds to divide by.
struct EvenBins {
  float factor, offset;
  __device__ EvenBins(float low, float high) {
    factor = static_cast<float>(kBins - 1) / (high - low);
    if (!(factor > 0.0f && factor < __int_as_float(0x7f800000))) factor = 0.0f;
    offset = factor > 0.0f ? -low * factor : 0.0f;
  }
  __device__ int operator()(float score, int) const {
    const float bin = fmaf(score, factor, offset);
    return static_cast<int>(fminf(fmaxf(bin, 0.0f), static_cast<float>(kBins - 1)));
  }
};

/// Bins of combined keys between two, both inclusive; others are in none.
struct KeyBins {
  uint64_t low, high;
  int shift;
  __device__ KeyBins(uint64_t low, uint64_t high) : low(low), high(high) {
    constexpr int kBits = 31 - __builtin_clz(kBins);
    shift = max(0, 64 - __clzll(static_cast<long long>(high - low)) - kBits);
  }
  __device__ int operator()(float score, int token) const {
    const uint64_t key = combined(score, token);
    return key < low || key > high ? -1 : static_cast<int>((key - low) >> shift);
  }
};

/// Calls act(score, token) for the thread's tokens; `scores` is 16-byte aligned.
template <class Act>
__device__ __forceinline__ void for_scores(const float* scores, int count, Act act) {
#pragma unroll 1
  for (int i = 4 * threadIdx.x; i < count; i += 4 * kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(scores + i);
    act(x.x, i);
    if (i + 1 < count) act(x.y, i + 1);
    if (i + 2 < count) act(x.z, i + 2);
    if (i + 3 < count) act(x.w, i + 3);
  }
}

/// The i-th token of those whose scores a thread keeps in registers.
__device__ __forceinline__ int token_of(int i) {
  return 4 * (threadIdx.x + i / 4 * kThreads) + i % 4;
}

__device__ __forceinline__ void clear_bins(Selection& s) {
  reinterpret_cast<uint4*>(s.bins)[threadIdx.x] = make_uint4(0, 0, 0, 0);
  if (threadIdx.x == 0) s.cut_bin = s.above = s.inside = 0;
}

/// Turns counts into how many scores lie in higher bins, and finds the bin of the score that is
/// `wanted`-th from above.
__device__ __forceinline__ void find_cut(Selection& s, uint32_t wanted) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = kBins / 4 - 1 - threadIdx.x;
  uint4* const quads = reinterpret_cast<uint4*>(s.bins);
  const uint4 counts = quads[first];
  const uint32_t own = counts.x + counts.y + counts.z + counts.w;
  uint32_t sum = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) s.of_warps[warp] = sum;
  __syncthreads();
  const uint32_t before = __reduce_add_sync(kAllLanes, lane < warp ? s.of_warps[lane] : 0);
  uint4 above;
  above.w = before + sum - own;
  above.z = above.w + counts.w;
  above.y = above.z + counts.z;
  above.x = above.y + counts.y;
  quads[first] = above;
  if (above.w < wanted && wanted <= above.x + counts.x) {
    int bin = 3;
    uint32_t higher = above.w, inside = counts.w;
    if (wanted > above.z) bin = 2, higher = above.z, inside = counts.z;
    if (wanted > above.y) bin = 1, higher = above.y, inside = counts.y;
    if (wanted > above.x) bin = 0, higher = above.x, inside = counts.x;
    s.cut_bin = 4 * first + bin;
    s.above = static_cast<int>(higher);
    s.inside = static_cast<int>(inside);
    s.found = 0;
    s.low = ~uint64_t{0};
    s.high = 0;
  }
  __syncthreads();
}

/// Has s.low and s.high span those of all threads of the warp, too.
__device__ __forceinline__ void widen(Selection& s, uint64_t low, uint64_t high) {
#pragma unroll 1
  for (int distance = 16; distance > 0; distance /= 2) {
    low = min(low, __shfl_xor_sync(kAllLanes, low, distance));
    high = max(high, __shfl_xor_sync(kAllLanes, high, distance));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMin(reinterpret_cast<unsigned long long*>(&s.low), low);
    atomicMax(reinterpret_cast<unsigned long long*>(&s.high), high);
  }
}

/// Takes the `left` highest of those in s.compared.
__device__ __forceinline__ void take_compared(Selection& s, int inside, int left) {
#pragma unroll 1
  for (int i = threadIdx.x; i < inside; i += kThreads) {
    const uint64_t key = s.compared[i];
    int rank = 0;
#pragma unroll 4
    for (int j = 0; j < inside; ++j) rank += s.compared[j] > key;
    if (rank < left) {
      s.places[kSelected - left + rank] = static_cast<int>(~static_cast<uint32_t>(key));
    }
  }
  __syncthreads();
}

/// One division: takes all above the cut. Returns how many are still wanted of the cut's bin, which
/// then is between s.low and s.high, or 0.
template <class Bins>
__device__ __forceinline__ int divide(Selection& s, const float* scores, int count, int taken,
                                      const Bins& bin_of) {
  for_scores(scores, count, [&](float score, int token) {
    const int bin = bin_of(score, token);
    if (bin >= 0) atomicAdd(&s.bins[bin], 1u);
  });
  __syncthreads();
  const int wanted = kSelected - taken;
  find_cut(s, static_cast<uint32_t>(wanted));
  const int cut_bin = s.cut_bin, inside = s.inside, left = wanted - s.above;
  const int lowest = left == inside ? cut_bin : cut_bin + 1;
  const bool compare = inside <= kCompared;
  uint64_t low = ~uint64_t{0}, high = 0;
  for_scores(scores, count, [&](float score, int token) {
    const int bin = bin_of(score, token);
    if (bin >= lowest) {
      s.places[taken + atomicAdd(&s.bins[bin], 1u)] = token;
    } else if (bin == cut_bin) {
      const uint64_t key = combined(score, token);
      if (compare) {
        s.compared[atomicAdd(&s.found, 1)] = key;
      } else {
        low = min(low, key);
        high = max(high, key);
      }
    }
  });
  if (!compare && left < inside) widen(s, low, high);
  __syncthreads();
  if (left == inside) return 0;
  if (!compare) return left;
  take_compared(s, inside, left);
  return 0;
}

/// The first division of at most kHeld scores, which stay in registers; what the count of a bin was
/// before a score came is the score's place among those of the bin. Without branches: what there is
/// no score for goes to words that nobody reads.
__device__ __forceinline__ int divide_held(Selection& s, const float* scores, int count,
                                           const EvenBins& bin_of) {
  const int lane = threadIdx.x % 32;
  float4 quads[kQuads];
  int bins[4 * kQuads];
  uint32_t ranks[4 * kQuads];
  const int last_quad = max(0, (count - 1) & ~3);
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    quads[j] = *reinterpret_cast<const float4*>(scores + min(token_of(4 * j), last_quad));
  }
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) {
    const int token = token_of(i);
    const float4 quad = quads[i / 4];
    const float score = i % 4 == 0 ? quad.x : i % 4 == 1 ? quad.y : i % 4 == 2 ? quad.z : quad.w;
    bins[i] = token < count ? bin_of(score, token) : kBins + lane;
    ranks[i] = atomicAdd(&s.bins[bins[i]], 1u);
  }
  __syncthreads();
  find_cut(s, kSelected);
  const int cut_bin = s.cut_bin, inside = s.inside, left = kSelected - s.above;
  const int lowest = left == inside ? cut_bin : cut_bin + 1;
  uint32_t at_cut = 0;
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) {
    const bool taken = bins[i] >= lowest && bins[i] < kBins;
    const uint32_t place = s.bins[bins[i]] + ranks[i];
    s.places[taken ? place : static_cast<uint32_t>(kSelected + lane)] = token_of(i);
    at_cut |= (bins[i] == cut_bin ? 1u : 0u) << i;
  }
  if (left == inside) at_cut = 0;
  uint64_t low = ~uint64_t{0}, high = 0;
#pragma unroll 1
  for (; at_cut != 0; at_cut &= at_cut - 1) {
    const int token = token_of(__ffs(at_cut) - 1);
    const uint64_t key = combined(scores[token], token);
    if (inside <= kCompared) {
      s.compared[atomicAdd(&s.found, 1)] = key;
    } else {
      low = min(low, key);
      high = max(high, key);
    }
  }
  if (left < inside && inside > kCompared) {
    widen(s, low, high);
    __syncthreads();
    return left;
  }
  __syncthreads();
  if (left < inside) take_compared(s, inside, left);
  return 0;
}

/// Bounds of scores, of which each thread knows its own; to be read after the block has met.
__device__ __forceinline__ void store_bounds(Selection& s, uint32_t lowest, uint32_t highest) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (lane == 0) {
    s.lowest[warp] = lowest;
    s.highest[warp] = highest;
  }
}

/// Leaves the places of the highest scores in s.places. All threads of the block take part, after
/// scores and bounds are there and s.bins is clear; none are left where count is 0.
__device__ __forceinline__ void select_highest(Selection& s, const float* scores, int count) {
  const int lane = threadIdx.x % 32;
  const uint32_t lowest = __reduce_min_sync(kAllLanes, s.lowest[lane % kWarps]);
  const uint32_t highest = __reduce_max_sync(kAllLanes, s.highest[lane % kWarps]);
  const EvenBins even(from_ordered(lowest), from_ordered(highest));
  int left = count <= kHeld ? divide_held(s, scores, count, even)
                            : divide(s, scores, count, 0, even);
#pragma unroll 1
  while (left > 0) {
    const uint64_t low = s.low, high = s.high;
    clear_bins(s);
    __syncthreads();
    left = divide(s, scores, count, kSelected - left, KeyBins(low, high));
  }
}

}  // namespace topk
