// y[n] = Σ_k W[n][k] x[k], for many rows x. Terms run over k in blocks of 256: acc = fma(W[n][k], x[k], acc) from acc = 0, and the
// block sums are added in order starting from 0. A vector lane is one output n, so its width cannot change a sum; a
// block of rows shares each load of weights, which changes which sums run side by side but none of them.
#pragma once

#include "elementwise.h"

namespace continuo::CONTINUO_ISA {

// Accumulators that stay in registers: vectors × rows of them, plus the weights and one broadcast.
#if defined(__AVX512F__)
constexpr size_t panel_vectors = 2, panel_rows = 12;
#elif defined(__AVX2__)
constexpr size_t panel_vectors = 2, panel_rows = 6;
#else
constexpr size_t panel_vectors = 2, panel_rows = 4;
#endif

// One panel: `Rows` rows × `Vectors`·width lanes. `w` points at the panel's first lane of the tile, `y` at the first output.
template <size_t Vectors, size_t Rows, class Stored>
CONTINUO_INLINE void panel(const Stored* w, size_t inputs, const float* x, float* y, size_t y_stride) {
  for (size_t block = 0; block < inputs; block += block_terms) {
    const size_t end = block + block_terms < inputs ? block + block_terms : inputs;
    Vec acc[Rows][Vectors] = {};
    for (size_t k = block; k < end; ++k) {
      Vec weights[Vectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) weights[v] = load_weights(w + k * tile_lanes + v * width);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec value = splat<Vec>(x[r * inputs + k]);
#pragma GCC unroll 16
        for (size_t v = 0; v < Vectors; ++v) acc[r][v] = fma(weights[v], value, acc[r][v]);
      }
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) {
        float* out = y + r * y_stride + v * width;
        const Vec before = block == 0 ? Vec{} : load<Vec>(out);
        store(out, before + acc[r][v]);
      }
    }
  }
}

// As `panel`, for the last lanes of a matrix: computes into a full-width buffer and keeps the real outputs.
template <size_t Vectors, size_t Rows, class Stored>
inline void edge_panel(const Stored* w, size_t inputs, const float* x, float* y, size_t y_stride, size_t lanes) {
  float buffer[Rows * Vectors * width];
  panel<Vectors, Rows>(w, inputs, x, buffer, Vectors * width);
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t lane = 0; lane < lanes; ++lane) y[r * y_stride + lane] = buffer[r * Vectors * width + lane];
  }
}

template <size_t Vectors, size_t Rows, class Stored>
inline void panels(const Stored* tile, size_t lanes, size_t inputs, const float* x, float* y, size_t y_stride) {
  constexpr size_t step = Vectors * width;
  for (size_t lane = 0; lane < lanes; lane += step) {
    if (lane + step <= lanes) panel<Vectors, Rows>(tile + lane, inputs, x, y + lane, y_stride);
    else edge_panel<Vectors, Rows>(tile + lane, inputs, x, y + lane, y_stride, lanes - lane);
  }
}

template <class Stored>
inline void matmul_as(const PackedMatrix& m, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end) {
  const size_t k = m.inputs, n = m.outputs;
  for (; tile < tile_end; ++tile) {
    const Stored* w = static_cast<const Stored*>(m.data) + tile * k * tile_lanes;
    const size_t first = tile * tile_lanes;
    const size_t lanes = n - first < tile_lanes ? n - first : tile_lanes;
    size_t r = row;
    const size_t end = row + rows;
    for (; r + panel_rows <= end; r += panel_rows) panels<panel_vectors, panel_rows>(w, lanes, k, x + r * k, y + r * n + first, n);
    for (; r + 4 <= end; r += 4) panels<panel_vectors, 4>(w, lanes, k, x + r * k, y + r * n + first, n);
    // One row alone: all 64 lanes at once hide the latency of fma.
    for (; r < end; ++r) panels<tile_lanes / width, 1>(w, lanes, k, x + r * k, y + r * n + first, n);
  }
}

inline void matmul(const PackedMatrix& m, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end) {
  switch (m.dtype) {
    case Dtype::f32: return matmul_as<float>(m, x, y, row, rows, tile, tile_end);
    case Dtype::f16: return matmul_as<F16>(m, x, y, row, rows, tile, tile_end);
    case Dtype::bf16: return matmul_as<Bf16>(m, x, y, row, rows, tile, tile_end);
  }
}

}  // namespace continuo::CONTINUO_ISA
