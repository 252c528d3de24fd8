// y[n] = Σ_k W[n][k] x[k], for many rows x. Terms run over k in blocks of 256: acc = fma(W[n][k], x[k], acc) from acc =
// 0, and the block sums are added in order starting from 0. A vector lane is one output n, so its width cannot change a
// sum; which rows and lanes run side by side changes nothing either.
#pragma once

#include "backends/cpu/kernels/panels.h"

namespace continuo::CONTINUO_ISA {

// Sums that stay in registers together with the weights and a term: panel_vectors × panel_rows of them.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr size_t panel_vectors = 4, panel_rows = 6;
#elif defined(__AVX2__)
constexpr size_t panel_vectors = 2, panel_rows = 6;
#else
constexpr size_t panel_vectors = 2, panel_rows = 4;
#endif
constexpr size_t panel_lanes = panel_vectors * width;

// Rows that one pass over the weights serves.
constexpr size_t pass_rows = 128;

// `w` points at the panel's first lane of the chunk; x is [Rows][stride].
template <size_t Rows, class Stored, size_t Lines> CONTINUO_INLINE void panel(const Stored* w, size_t terms,
                                                                              const float* x, size_t stride,
                                                                              const Sums& sums, Ahead<Lines> ahead) {
  Vec acc[Rows][panel_vectors] = {};
  for (size_t k = 0; k < terms; ++k) {
    ahead.fetch();
    Vec weights[panel_vectors];
#pragma GCC unroll 16
    for (size_t v = 0; v < panel_vectors; ++v) weights[v] = load_weights(w + k * tile_lanes + v * width);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      const Vec value = splat<Vec>(x[r * stride + k]);
#pragma GCC unroll 16
      for (size_t v = 0; v < panel_vectors; ++v) acc[r][v] = fma(weights[v], value, acc[r][v]);
    }
  }
  add_sums(acc, sums);
}

// Rows × one chunk; `next` is where the chunk after it begins.
template <size_t Lines, class Stored> CONTINUO_INLINE void multiply_chunk(const Stored* w, size_t terms, const float* x,
                                                                          size_t stride, size_t rows, const Sums& sums,
                                                                          const Stored* next) {
  const size_t panels = (rows + panel_rows - 1) / panel_rows * (tile_lanes / panel_lanes);
  const size_t step = tile_lanes * sizeof(Stored) / panels;
  const char* at = reinterpret_cast<const char*>(next);
  each_panel<panel_rows>(rows, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
    for (size_t lane = 0; lane < least(tile_lanes, sums.lanes); lane += panel_lanes) {
      panel<Rows>(w + lane, terms, x + row * stride, stride, sums.at(row, lane), Ahead<Lines>{at, step});
      at += step * terms;
    }
  });
}

// Few rows are bound by the stream of weights: tiles outermost, so that it comes in order of address.
template <class Stored>
inline void few_rows(const PackedMatrix& m, const float* x, float* y, size_t rows, size_t tile, size_t tile_end) {
  constexpr size_t lines = few_lines(panel_lanes, tile_lanes * sizeof(Stored) / 64);
  const Stored* w = static_cast<const Stored*>(m.data) + tile * m.inputs * tile_lanes;
  for (; tile < tile_end; ++tile) {
    const size_t n = tile * tile_lanes;
    for (size_t block = 0; block < m.inputs; block += block_terms) {
      const size_t terms = least(block_terms, m.inputs - block);
      const Stored* next = w + terms * tile_lanes;
      multiply_chunk<lines>(w, terms, x + block, m.inputs, rows, {y + n, m.outputs, m.outputs - n, block == 0}, next);
      w = next;
    }
  }
}

// Many rows are bound by arithmetic: blocks outermost, so that the rows' terms stay in the caches, side by side (rows
// whose distance is a large power of two would take each other's place there).
template <class Stored> inline void many_rows(const PackedMatrix& m, const float* x, float* y, size_t rows,
                                              size_t tile_begin, size_t tile_end) {
  constexpr size_t lines = (tile_lanes * sizeof(Stored) + 127) / 128;
  const auto chunk = [&](size_t tile, size_t block) {
    return static_cast<const Stored*>(m.data) + (tile * m.inputs + block) * tile_lanes;
  };
  alignas(64) float together[pass_rows * block_terms];
  for (size_t block = 0; block < m.inputs; block += block_terms) {
    const size_t terms = least(block_terms, m.inputs - block);
    for (size_t r = 0; r < rows; ++r)
      __builtin_memcpy(together + r * block_terms, x + r * m.inputs + block, terms * sizeof(float));
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      const size_t n = tile * tile_lanes;
      const Stored* next = tile + 1 < tile_end ? chunk(tile + 1, block) : chunk(tile_begin, block + terms);
      multiply_chunk<lines>(chunk(tile, block), terms, together, block_terms, rows,
                            {y + n, m.outputs, m.outputs - n, block == 0}, next);
    }
  }
}

template <class Stored> inline void matmul_as(const PackedMatrix& m, const float* x, float* y, size_t row, size_t rows,
                                              size_t tile, size_t tile_end) {
  x += row * m.inputs;
  y += row * m.outputs;
  if (rows <= panel_rows) return few_rows<Stored>(m, x, y, rows, tile, tile_end);
  for (size_t r = 0; r < rows; r += pass_rows) {
    many_rows<Stored>(m, x + r * m.inputs, y + r * m.outputs, least(pass_rows, rows - r), tile, tile_end);
  }
}

inline void matmul(const PackedMatrix& m, const float* x, float* y, size_t row, size_t rows, size_t tile,
                   size_t tile_end) {
  if (rows == 0) return;
  switch (m.dtype) {
    case Dtype::f32: return matmul_as<float>(m, x, y, row, rows, tile, tile_end);
    case Dtype::f16: return matmul_as<F16>(m, x, y, row, rows, tile, tile_end);
    case Dtype::bf16: return matmul_as<Bf16>(m, x, y, row, rows, tile, tile_end);
    default: return;  // matmul_quantised
  }
}

}  // namespace continuo::CONTINUO_ISA
