// Units of work of the two projections, in the order in which blocks take them.
//
// A tile is up to kTile rows of one expert. A unit of the first projection is a slice of a tile, 64
// intermediate channels for each piece of weights, or one of several parts of its depth; a unit of
// the second is 128 outputs for each piece, or a part. All units of the first come before those of
// the second, so that what a unit waits for was taken by a block that runs.
#pragma once

#include "problem.cuh"
#include "ptx.cuh"

namespace moe {

constexpr int slices_for(int pieces) { return kInner / (pieces * kPieceChannels); }
constexpr int outputs_for(int pieces) { return kHidden / (pieces * kPieceRows); }

struct alignas(16) Unit {
  int phase;      // 0 first projection, 1 second, 2 there is none
  int expert;
  int row;        // first row
  int rows;       // up to kTile
  int tile;
  int place;      // which channels or outputs
  int begin;      // blocks of 128 of the depth
  int end;
  int part;
  int parts;
  int unused[2];
};

/// What a warp knows of all experts; lane e holds that of expert e. Tiles of an expert have about
/// as many rows each, multiples of eight; with units of two pieces all but the last are full.
template <int kTile, int kPieces>
struct Schedule {
  static constexpr int kSlices = slices_for(kPieces);
  static constexpr int kOutputs = outputs_for(kPieces);

  int rows;
  int row;         // first
  int tiles;
  int tile;        // first
  int tile_rows;
  int all_tiles;
  int first_parts;
  int second_parts;

  static __device__ Schedule read(const Scratch& scratch, bool may_split) {
    const int lane = threadIdx.x % 32;
    Schedule s;
    s.rows = __ldcg(scratch.count + lane);
    s.row = __ldcg(scratch.first + lane);
    s.tiles = (s.rows + kTile - 1) / kTile;
    const int divisor = max(s.tiles, 1);
    s.tile_rows = kPieces == 2 ? kTile : ((s.rows + divisor - 1) / divisor + 7) / 8 * 8;
    int sum = s.tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    s.tile = sum - s.tiles;
    s.all_tiles = __shfl_sync(kAllLanes, sum, 31);
    s.first_parts = !may_split ? 1 : s.all_tiles == 1 ? 4 : s.all_tiles == 2 ? 2 : 1;
    s.second_parts = may_split && (s.all_tiles == 1 || s.all_tiles == 3) ? 2 : 1;
    return s;
  }

  /// Unit `index`; all lanes get it.
  __device__ Unit unit(int index) const {
    Unit u;
    const int firsts = all_tiles * kSlices * first_parts;
    const int seconds = all_tiles * kOutputs * second_parts;
    u.phase = index < firsts ? 0 : index < firsts + seconds ? 1 : 2;
    if (u.phase == 2) return u;
    if (u.phase == 1) index -= firsts;
    u.parts = u.phase == 0 ? first_parts : second_parts;
    const int each = (u.phase == 0 ? kSlices : kOutputs) * u.parts;  // units of a tile
    const unsigned started = __ballot_sync(kAllLanes, tile * each <= index && tiles > 0);
    u.expert = 31 - __clz(started);
    const int here = __shfl_sync(kAllLanes, tiles, u.expert);
    const int first_tile = __shfl_sync(kAllLanes, tile, u.expert);
    const int count = __shfl_sync(kAllLanes, rows, u.expert);
    const int most = __shfl_sync(kAllLanes, tile_rows, u.expert);
    const int first_row = __shfl_sync(kAllLanes, row, u.expert);
    index -= first_tile * each;
    // Tiles of an expert take turns: they share weights.
    const int which = index % here;
    index /= here;
    u.part = index % u.parts;
    u.place = index / u.parts;
    u.tile = first_tile + which;
    u.rows = min(count - which * most, most);
    u.row = first_row + which * most;
    const int depth = (u.phase == 0 ? kHiddenBlocks : kInnerBlocks) / u.parts;
    u.begin = u.part * depth;
    u.end = u.begin + depth;
    return u;
  }
};

}  // namespace moe
