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
constexpr int kCompared = kThreads;  // most scores that are compared with each other
constexpr int kQuads = 3;            // of scores that a thread keeps in registers
constexpr int kHeld = 4 * kQuads * kThreads;
constexpr uint32_t kUnit = 4;  // what one score counts, so that counts are places in bytes

struct alignas(16) Selection {
  uint32_t bins[kBins];  // counts, then how many scores lie in higher bins
  int ids[kSelected];     // of the selected tokens
  int at_cut[kCompared];  // tokens of the cut's bin
  uint64_t compared[kCompared];
  uint32_t of_warps[kWarps];
  uint32_t lowest[kWarps], highest[kWarps];
  uint64_t low, high;  // of the bin to be divided
  int cut_bin;
  uint32_t above, inside;  // the cut's bin
  uint32_t found;
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
    factor = __fdividef(1.0f, high - low);
    if (!(factor > 0.0f && factor < __int_as_float(0x7f800000))) factor = 0.0f;
    offset = factor > 0.0f ? -low * factor : 0.0f;
  }
  /// Where the count of the score's bin is, in bytes: a number near 2^21 has its units at bit 2.
  __device__ uint32_t bytes(float score) const {
    const float part = __saturatef(fmaf(score, factor, offset));
    const float bin = fmaf(part, static_cast<float>(kBins - 1), 2097152.0f);
    return __float_as_uint(bin) & 0x1ffcu;
  }
  __device__ int operator()(float score, int) const { return static_cast<int>(bytes(score) / 4); }
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

__device__ __forceinline__ void clear_bins(Selection& s) {
  reinterpret_cast<uint4*>(s.bins)[threadIdx.x] = make_uint4(0, 0, 0, 0);
}

/// Turns counts into how many scores lie in higher bins, and finds the bin in which `wanted` are
/// reached. All in units.
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
    s.above = higher;
    s.inside = inside;
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

__device__ __forceinline__ int id_of(const int* pages, int token) {
  const unsigned at = static_cast<unsigned>(token);
  return pages[at / kPage] * kPage + static_cast<int>(at % kPage);
}

/// Takes the `left` highest of the `inside` scores of s.at_cut, at most kCompared.
__device__ __forceinline__ void take_compared(Selection& s, const float* scores, const int* pages,
                                              int inside, int left) {
  const int own = threadIdx.x;
  if (inside <= 32) {  // as a rule; one warp does without meetings
    if (own < 32) {
      uint64_t key = 0;
      if (own < inside) key = combined(scores[s.at_cut[own]], s.at_cut[own]);
      int rank = 0;
#pragma unroll 1
      for (int i = 0; i < inside; ++i) rank += __shfl_sync(kAllLanes, key, i) > key;
      const int token = static_cast<int>(~static_cast<uint32_t>(key));
      if (own < inside && rank < left) s.ids[kSelected - left + rank] = id_of(pages, token);
    }
  } else {
    uint64_t key = 0;
    if (own < inside) s.compared[own] = key = combined(scores[s.at_cut[own]], s.at_cut[own]);
    __syncthreads();
    if (own < inside) {
      int rank = 0;
#pragma unroll 1
      for (int i = 0; i < inside; ++i) rank += s.compared[i] > key;
      const int token = static_cast<int>(~static_cast<uint32_t>(key));
      if (rank < left) s.ids[kSelected - left + rank] = id_of(pages, token);
    }
  }
  __syncthreads();
}

/// One division: takes all above the cut. Returns how many are still wanted of the cut's bin, which
/// then is between s.low and s.high, or 0.
template <class Bins>
__device__ __forceinline__ int divide(Selection& s, const float* scores, const int* pages, int count,
                                      int taken, const Bins& bin_of) {
  for_scores(scores, count, [&](float score, int token) {
    const int bin = bin_of(score, token);
    if (bin >= 0) atomicAdd(&s.bins[bin], kUnit);
  });
  __syncthreads();
  const int wanted = kSelected - taken;
  find_cut(s, static_cast<uint32_t>(wanted) * kUnit);
  const int cut_bin = s.cut_bin, inside = static_cast<int>(s.inside / kUnit);
  const int left = wanted - static_cast<int>(s.above / kUnit);
  const int lowest = left == inside ? cut_bin : cut_bin + 1;
  const bool compare = inside <= kCompared;
  uint64_t low = ~uint64_t{0}, high = 0;
  for_scores(scores, count, [&](float score, int token) {
    const int bin = bin_of(score, token);
    if (bin >= lowest) {
      s.ids[taken + atomicAdd(&s.bins[bin], kUnit) / kUnit] = id_of(pages, token);
    } else if (bin == cut_bin) {
      if (compare) {
        s.at_cut[atomicAdd(&s.found, 1u)] = token;
      } else {
        low = min(low, combined(score, token));
        high = max(high, combined(score, token));
      }
    }
  });
  if (!compare && left < inside) widen(s, low, high);
  __syncthreads();
  if (left == inside) return 0;
  if (!compare) return left;
  take_compared(s, scores, pages, inside, left);
  return 0;
}

template <typename T>
__device__ __forceinline__ T& at_byte(void* base, uint32_t offset) {
  return *reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

/// The first division of at most kHeld scores, as few instructions a score as can be: one block has
/// them all. What the count of a bin was before a score came is the score's place among those of the
/// bin. The last page is filled up with negative infinity, which is in the lowest bin.
__device__ __forceinline__ int divide_held(Selection& s, const float* scores, const int* pages,
                                           int count, const EvenBins& bin_of) {
  float4 quads[kQuads];
  int page_ids[kQuads];
  uint32_t bins[4 * kQuads], places[4 * kQuads];
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int token = 4 * (threadIdx.x + j * kThreads);
    if (token < count) {
      quads[j] = *reinterpret_cast<const float4*>(scores + token);
      page_ids[j] = id_of(pages, token);
    }
  }
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    if (4 * (threadIdx.x + j * kThreads) >= count) break;
    const float held[4] = {quads[j].x, quads[j].y, quads[j].z, quads[j].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      bins[4 * j + k] = bin_of.bytes(held[k]);
      places[4 * j + k] = atomicAdd(&at_byte<uint32_t>(s.bins, bins[4 * j + k]), kUnit);
    }
  }
  __syncthreads();
  find_cut(s, kSelected * kUnit);
  const uint32_t above = s.above, inside = s.inside, left = kSelected * kUnit - above;
  const bool again = s.cut_bin == 0 || (left < inside && inside > kCompared * kUnit);
  const uint32_t compared = !again && left < inside ? inside : 0;
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    if (4 * (threadIdx.x + j * kThreads) >= count) break;
#pragma unroll
    for (int k = 0; k < 4; ++k) places[4 * j + k] += at_byte<uint32_t>(s.bins, bins[4 * j + k]);
  }
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int token = 4 * (threadIdx.x + j * kThreads);
    if (token >= count) break;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // In lower bins it is 2048 or more; at the cut it is right unless scores are compared.
      const uint32_t place = places[4 * j + k];
      if (place < kSelected * kUnit) at_byte<int>(s.ids, place) = page_ids[j] + k;
      if (place - above < compared) at_byte<int>(s.at_cut, place - above) = token + k;
    }
  }
  if (again) {
    uint64_t low = ~uint64_t{0}, high = 0;
    for_scores(scores, count, [&](float score, int token) {
      if (bin_of(score, token) == s.cut_bin) {
        low = min(low, combined(score, token));
        high = max(high, combined(score, token));
      }
    });
    widen(s, low, high);
  }
  __syncthreads();
  if (again) return static_cast<int>(left / kUnit);
  if (compared > 0) take_compared(s, scores, pages, inside / kUnit, left / kUnit);
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

/// Leaves the ids of the tokens with the highest scores in s.ids. All threads of the block take part, after
/// scores and bounds are there and s.bins is clear. kFew: count is at most kHeld, and the last page
/// is filled up.
template <bool kFew>
__device__ __forceinline__ void select_highest(Selection& s, const float* scores, int count,
                                               const int* pages) {
  const int lane = threadIdx.x % 32;
  const uint32_t lowest = __reduce_min_sync(kAllLanes, s.lowest[lane % kWarps]);
  const uint32_t highest = __reduce_max_sync(kAllLanes, s.highest[lane % kWarps]);
  const EvenBins even(from_ordered(lowest), from_ordered(highest));
  int left;
  if constexpr (kFew) {
    left = divide_held(s, scores, pages, count, even);
  } else {
    left = divide(s, scores, pages, count, 0, even);
  }
#pragma unroll 1
  while (left > 0) {
    const uint64_t low = s.low, high = s.high;
    clear_bins(s);
    __syncthreads();
    left = divide(s, scores, pages, count, kSelected - left, KeyBins(low, high));
  }
}

}  // namespace topk
