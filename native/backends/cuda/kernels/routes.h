// Which rows of a step meet which matrix of a stack (Routed, command.h). A place is the number of a row times the
// matrices that a row goes to, plus the place among those.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cuts.h"

namespace continuo::cuda {

constexpr uint32_t most_route_threads = 1024;

// Rows of a pass: as many as probably go to one matrix, since a pass costs the same for fewer.
constexpr uint32_t route_height(uint32_t places, uint32_t rows, uint32_t matrices) {
  return rows == 1 ? 1 : places <= 2 * matrices ? 2 : pass_rows;
}

// Passes that there may be, known before the ids are: one for each place, or for each whole pass of places and the rest
// of each matrix. The last matrix stands for ids that name none.
constexpr uint32_t most_passes(uint32_t places, uint32_t height, uint32_t matrices) {
  const uint32_t by_matrix = places / height + matrices + 1;
  return places < by_matrix ? places : by_matrix;
}

// Lists the places by their matrix, ascending, and cuts the list into passes. One block: a thread looks for the places
// of some matrices, and counts those of all matrices before, so nothing depends on the order of threads. The passes of
// a matrix begin where those of the matrices before it can at most end.
__global__ void __launch_bounds__(most_route_threads)
    group_routes(const int32_t* ids, uint32_t places, uint32_t matrices, uint32_t height, uint32_t bound, Pass* passes,
                 uint32_t* list) {
  __shared__ uint32_t matrix_of[most_places];
  for (uint32_t place = threadIdx.x; place < places; place += blockDim.x) {
    const auto id = static_cast<uint32_t>(ids[place]);
    matrix_of[place] = id < matrices ? id : matrices;
  }
  for (uint32_t i = threadIdx.x; i < bound; i += blockDim.x) passes[i].rows = 0;
  __syncthreads();
  for (uint32_t matrix = threadIdx.x; matrix <= matrices; matrix += blockDim.x) {
    uint32_t before = 0, own = 0;
    for (uint32_t place = 0; place < places; ++place) {
      before += matrix_of[place] < matrix;
      own += matrix_of[place] == matrix;
    }
    if (own == 0) continue;
    const uint32_t begin = bound == places ? before : before / height + matrix;
    for (uint32_t done = 0; done < own; done += height) {
      passes[begin + done / height] = {matrix, before + done, own - done < height ? own - done : height};
    }
    for (uint32_t place = 0; place < places; ++place) {
      if (matrix_of[place] == matrix) list[before++] = place;
    }
  }
}

}  // namespace continuo::cuda
