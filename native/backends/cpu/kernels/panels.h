// How a product of rows and a packed matrix is cut up; matmul.h and matmul_quantised.h say what is computed.
//
// A chunk is one tile's block of 256 terms, a panel a few rows × some lanes of a chunk, whose sums stay in registers. A
// chunk comes from memory once and from the caches for all panels but the first, and while its panels compute they
// fetch the next chunk: the hardware's own prefetching stops at every page and cannot know where the next chunk is. But
// where panels are as wide as tiles, few rows read a matrix strictly in order of address. Then the hardware alone is
// faster: on Zen 5, one thread, one row, f16, 17 to 21 GB/s beside 12 to 15.
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/simd.h"

namespace continuo::CONTINUO_ISA {

// Cache lines that a panel of few rows fetches ahead with each term: none where it is as wide as a tile (see above).
constexpr size_t few_lines(size_t lanes, size_t lines) { return lanes == tile_lanes ? 0 : lines; }

// The part of the next chunk that one panel fetches: `step` bytes with each term, at most `Lines` cache lines.
template <size_t Lines> struct Ahead {
  const char* at;
  size_t step;
  CONTINUO_INLINE void fetch() {
#pragma GCC unroll 8
    for (size_t line = 0; line < Lines; ++line) __builtin_prefetch(at + line * 64);
    at += step;
  }
};

// Where a panel's sums go.
struct Sums {
  float* y;       // the first output
  size_t stride;  // floats from one row to the next
  size_t lanes;   // outputs that exist, from the first on
  bool first;     // nothing has been summed into them yet

  Sums at(size_t row, size_t lane) const { return {y + row * stride + lane, stride, lanes - lane, first}; }
};

template <size_t Rows, size_t Vectors>
CONTINUO_INLINE void add_sums(const Vec (&acc)[Rows][Vectors], const Sums& sums) {
  if (sums.lanes >= Vectors * width) {
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) {
        float* out = sums.y + r * sums.stride + v * width;
        store(out, (sums.first ? Vec{} : load<Vec>(out)) + acc[r][v]);
      }
    }
    return;
  }
  float all[Rows][Vectors * width];
  __builtin_memcpy(all, acc, sizeof all);
  for (size_t r = 0; r < Rows; ++r) {
    float* out = sums.y + r * sums.stride;
    for (size_t lane = 0; lane < sums.lanes; ++lane) out[lane] = (sums.first ? 0.0f : out[lane]) + all[r][lane];
  }
}

// Calls run.operator()<rows>() for a number of rows known at run time, at most Rows.
template <size_t Rows, class Run> CONTINUO_INLINE void with_rows(size_t rows, const Run& run) {
  if constexpr (Rows > 1) {
    if (rows != Rows) return with_rows<Rows - 1>(rows, run);
  }
  run.template operator()<Rows>();
}

// Cuts rows into panels of equal height, at most Rows (a low last one would wait for its sums), and calls
// run.operator()<height>(first row).
template <size_t Rows, class Run> CONTINUO_INLINE void each_panel(size_t rows, const Run& run) {
  const size_t count = (rows + Rows - 1) / Rows;
  for (size_t p = 0; p < count; ++p) {
    const size_t from = rows * p / count, to = rows * (p + 1) / count;
    with_rows<Rows>(to - from, [&]<size_t Height>() CONTINUO_LAMBDA { run.template operator()<Height>(from); });
  }
}

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

}  // namespace continuo::CONTINUO_ISA
