// The launches of a call, and the scratch memory that they share.
#pragma once

#include <algorithm>

#include "combine.cuh"
#include "launch.cuh"
#include "plain.cuh"
#include "routing.cuh"
#include "stream.cuh"

namespace moe {

/// Tiles of `stream` by tokens: an expert seldom has more rows of so many.
struct TileChoice {
  int tokens;
  int tile;
};
/// The last of them stands for tiles of 128 rows with units of two pieces.
constexpr int kWide = 256;
constexpr TileChoice kTileChoices[] = {{16, 16}, {160, 32}, {1600, 64}, {INT32_MAX, kWide}};

inline int tile_for(int tokens) {
  for (const TileChoice& choice : kTileChoices) {
    if (tokens <= choice.tokens) return choice.tile;
  }
  return kWide;
}

/// Lays scratch memory out from `base` on; returns its size, also where `base` is null.
inline size_t lay_out(Scratch& scratch, char* base, int tokens, int tile) {
  size_t used = 0;
  const auto take = [&](auto*& pointer, int64_t count) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + used);
    used += (static_cast<size_t>(count) * sizeof(*pointer) + 255) / 256 * 256;
  };
  const int64_t rows = int64_t{kTop} * tokens;
  const int64_t tiles = kLocal + rows / (tile > 128 ? 128 : tile > 0 ? tile : kPlainTile);
  const int64_t split_rows = int64_t{kSplitTiles} * tile;
  const bool may_split = tile > 0 && tile <= 32;
  take(scratch.head, 64);
  take(scratch.done, tiles);
  take(scratch.part_count, kSplitTiles * slices_for(1));
  scratch.zeros = static_cast<int>(used / sizeof(int));
  take(scratch.count, kLocal);
  take(scratch.first, kLocal);
  take(scratch.local, tokens);
  take(scratch.row_token, rows);
  take(scratch.place, rows);
  take(scratch.weight, rows);
  take(scratch.inner, rows * kInner);
  take(scratch.inner_scale, rows * slices_for(1));
  take(scratch.partial,
       may_split ? int64_t{slices_for(1)} * kFirstParts * kPieceRows * tile : int64_t{0});
  scratch.result_stride = std::min(rows, split_rows) * kHidden;
  take(scratch.result,
       std::max(rows * kHidden, may_split ? kSecondParts * scratch.result_stride : int64_t{0}));
  return used;
}

template <class S>
cudaError_t launch_stream(const StreamParams& params, int processors, cudaStream_t stream_) {
  constexpr size_t kBytes = sizeof(S) + 1024;  // and to align it
  return launch_grid<stream<S>>({processors, kStreamThreads, kBytes, true}, stream_, params);
}

inline cudaError_t launch_any_stream(const StreamParams& params, int tile, int processors,
                                     cudaStream_t stream) {
  switch (tile) {
    case 16: return launch_stream<Stream<16, 11, 1>>(params, processors, stream);
    case 32: return launch_stream<Stream<32, 10, 1>>(params, processors, stream);
    case 64: return launch_stream<Stream<64, 8, 1>>(params, processors, stream);
    default: return launch_stream<Stream<128, 4, 2>>(params, processors, stream);
  }
}

inline cudaError_t launch_plain(const Problem& problem, const Scratch& scratch, int processors,
                                cudaStream_t stream) {
  const int64_t blocks = int64_t{processors} * 4;
  const cudaError_t status =
      launch_grid<plain_first>({blocks, kPlainThreads, 0, true}, stream, problem, scratch);
  if (status != cudaSuccess) return status;
  return launch_grid<plain_second>({blocks, kPlainThreads, 0, true}, stream, problem, scratch);
}

/// All launches of a call; tile 0 stands for the plain kernels.
inline cudaError_t launch_layer(const Problem& problem, const Scratch& scratch, int tile,
                                int processors, cudaStream_t stream) {
  const int64_t tokens = problem.tokens;
  cudaError_t status = cudaSuccess;
  StreamParams params{{}, {}, problem, scratch};
  if (tile > 0) {
    status = map_first(params.first, problem.w13);
    if (status == cudaSuccess) status = map_second(params.second, problem.w2);
    if (status != cudaSuccess) return status;
  }
  if (tokens <= kRouteFew) {
    status = launch_grid<route_few>({kRouteBlocks, kRouteFewThreads, 0, false, kRouteBlocks},
                                    stream, problem, scratch);
  } else {
    constexpr int kWarps = kRouteThreads / 32;
    status = launch_grid<route_many>({(tokens + kWarps - 1) / kWarps, kRouteThreads, 0}, stream,
                                     problem, scratch);
    if (status == cudaSuccess) {
      status = launch_grid<pack_rows>({kLocal, kPackThreads, 0, true}, stream, problem, scratch);
    }
  }
  if (status != cudaSuccess) return status;
  status = tile == 0 ? launch_plain(problem, scratch, processors, stream)
                     : launch_any_stream(params, tile, processors, stream);
  if (status != cudaSuccess) return status;
  return launch_grid<combine>({tokens * kCombineBlocks, kCombineThreads, 0, true}, stream, problem,
                              scratch);
}

}  // namespace moe
