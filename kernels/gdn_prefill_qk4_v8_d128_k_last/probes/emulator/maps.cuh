// Stands in for the solution's maps.cuh: boxes of 64 rows of 128 bytes.
#pragma once

#include "emulated.h"

namespace gdn {

struct TensorMap {
  emulated::TensorMap map;
  int bytes;  // of an element
};

inline cudaError_t map_rows(TensorMap& map, int bytes, const void* data, int64_t rows,
                            int columns) {
  map.bytes = bytes;
  const int64_t row_bytes = int64_t{columns} * bytes;
  return emulated::encode<2>(map.map, data, {row_bytes, rows}, {row_bytes}, {128, 64}, true);
}

}  // namespace gdn
