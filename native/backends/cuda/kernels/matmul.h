// y[n] = Σ_k W[n][k] x[k] (cpu/matmul.h): fma over k in blocks of 256 from 0, and the block sums added in order from 0.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cuts.h"
#include "backends/cuda/kernels/launch.h"

namespace continuo::cuda {

// A thread: one output and one block of 256 terms, of Rows rows. Lanes threads side by side are outputs, the groups of
// them (slots) blocks of terms. The weights of Batch terms are on their way at once, while the slot brings those terms
// of the rows to shared memory.
template <class Stored, uint32_t Rows, uint32_t Lanes, class Cut> __global__ void __launch_bounds__(few_threads, 1)
    matmul_few(const CONTINUO_GRID_CONSTANT Cut cut) {
  constexpr uint32_t batch = Rows <= 2 ? 64 : 32;
  // Slots of one warp begin in different banks.
  constexpr uint32_t slot_floats = Rows * batch + 4;
  constexpr uint32_t most_slots = few_threads / Lanes;
  static_assert(Rows * Lanes <= slot_floats, "the sums take the place of the terms");
  alignas(16) __shared__ float shared[most_slots * slot_floats];

  const auto piece = cut.piece(blockIdx.x);
  const Product& product = piece.product;
  const uint32_t output = piece.unit * Lanes, inputs = product.inputs;
  if (cut.idle(piece, output, Lanes)) return;
  const uint32_t lane = threadIdx.x % Lanes, slot = threadIdx.x / Lanes, slots = blockDim.x / Lanes;
  const uint32_t blocks = pieces(inputs, block_terms);
  const Stored* const weights =
      static_cast<const Stored*>(piece.data) +
      (output / tile_lanes * static_cast<size_t>(inputs) * tile_lanes + output % tile_lanes + lane);
  float* const terms = shared + slot * slot_floats;

  Outputs<Rows, Lanes> outputs;
  for (uint32_t turn = 0; turn < blocks; turn += slots) {
    const uint32_t begin = (turn + slot) * block_terms;
    const uint32_t end = begin + block_terms < inputs ? begin + block_terms : inputs;
    // A warp goes on as long as the first of its slots, which has the most terms.
    const uint32_t warp_begin = (turn + threadIdx.x / 32 * 32 / Lanes) * block_terms;
    const uint32_t steps =
        warp_begin < inputs ? pieces(inputs - warp_begin < block_terms ? inputs - warp_begin : block_terms, batch) : 0;
    float acc[Rows] = {};
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t k = begin + step * batch;
      const uint32_t left = k < end ? (end - k < batch ? end - k : batch) : 0;
      const Stored* const w = weights + static_cast<size_t>(k) * tile_lanes;
      const bool full = left == batch;
      Stored raw[batch];
      if (full) {
#pragma unroll
        for (uint32_t i = 0; i < batch; ++i) raw[i] = load_once(w + i * tile_lanes);
      }
      // What stands for terms and rows that are not there is never used.
      float brought[Rows * batch / Lanes];
#pragma unroll
      for (uint32_t i = 0; i < Rows * batch / Lanes; ++i) {
        const uint32_t term = (lane + i * Lanes) % batch, r = (lane + i * Lanes) / batch;
        brought[i] = load_once(product.x + (term < left && r < piece.rows ? piece.from(r) * inputs + k + term : 0));
      }
      if (step > 0) __syncwarp();
#pragma unroll
      for (uint32_t i = 0; i < Rows * batch / Lanes; ++i) terms[lane + i * Lanes] = brought[i];
      __syncwarp();
      if (full) {
#pragma unroll
        for (uint32_t i = 0; i < batch; i += 4) {
          float weight[4];
#pragma unroll
          for (uint32_t j = 0; j < 4; ++j) weight[j] = widen(raw[i + j]);
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r) {
            const Four x = *reinterpret_cast<const Four*>(terms + r * batch + i);
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) acc[r] = fma(weight[j], x.at[j], acc[r]);
          }
        }
      } else {
        for (uint32_t i = 0; i < left; ++i) {
          const float weight = widen(load_once(w + i * tile_lanes));
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r) acc[r] = fma(weight, terms[r * batch + i], acc[r]);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) shared[(slot * Rows + r) * Lanes + lane] = acc[r];
    __syncthreads();
    outputs.add(shared, blocks - turn < slots ? blocks - turn : slots);
    if (turn + slots < blocks) __syncthreads();
  }
  outputs.give(piece, output);
}

// A square of 64 outputs and Tall · 16 rows. Each of 16 × 16 threads has 4 outputs and Tall rows of it, whose sums stay
// in registers.
template <class Stored, uint32_t Tall> __global__ void __launch_bounds__(many_threads, 2)
    matmul_many(const CONTINUO_GRID_CONSTANT InOrder cut) {
  constexpr uint32_t slice = 16, height = Tall * 16, wide = 4;
  constexpr uint32_t row_floats = height + 4;
  struct alignas(4 * sizeof(Stored)) Weights {
    Stored at[4];
  };
  alignas(16) __shared__ float weights[2][slice * tile_lanes];
  alignas(16) __shared__ float terms[2][slice * row_floats];

  const auto piece = cut.piece(blockIdx.x);
  const Product& product = piece.product;
  const uint32_t tile = piece.unit, inputs = product.inputs, rows_here = piece.rows;
  const Stored* const w = static_cast<const Stored*>(piece.data) + static_cast<size_t>(tile) * inputs * tile_lanes;
  const float* const x = product.x + piece.from(0) * inputs;
  const uint32_t t = threadIdx.x, column = t % 16 * wide, line = t / 16 * 4;

  // What a thread brings of a slice: 4 weights of one term, and 4 terms of each of Tall / 4 rows, which lie turned in
  // shared memory.
  const uint32_t own_term = t / 16, own_row = t / 4, own_four = t % 4 * 4;
  Weights next_weights{};
  float next_terms[Tall / 4][4];
  const auto fetch = [&](uint32_t k) {
    if (k + own_term < inputs)
      next_weights = *reinterpret_cast<const Weights*>(w + static_cast<size_t>(k + own_term) * tile_lanes + column);
#pragma unroll
    for (uint32_t i = 0; i < Tall / 4; ++i) {
      const uint32_t r = own_row + i * 64;
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t term = k + own_four + j;
        next_terms[i][j] =
            r < rows_here && term < inputs ? load_once(x + static_cast<size_t>(r) * inputs + term) : 0.0f;
      }
    }
  };
  const auto put = [&](uint32_t half) {
    Four four;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) four.at[j] = widen(next_weights.at[j]);
    *reinterpret_cast<Four*>(weights[half] + own_term * tile_lanes + column) = four;
#pragma unroll
    for (uint32_t i = 0; i < Tall / 4; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) terms[half][(own_four + j) * row_floats + own_row + i * 64] = next_terms[i][j];
    }
  };

  float acc[Tall][wide] = {}, total[Tall][wide] = {};
  const auto multiply_term = [&](uint32_t half, uint32_t k) {
    const Four weight = *reinterpret_cast<const Four*>(weights[half] + k * tile_lanes + column);
#pragma unroll
    for (uint32_t i = 0; i < Tall / 4; ++i) {
      const Four term = *reinterpret_cast<const Four*>(terms[half] + k * row_floats + line + i * 64);
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
        for (uint32_t n = 0; n < wide; ++n) acc[i * 4 + r][n] = fma(weight.at[n], term.at[r], acc[i * 4 + r][n]);
      }
    }
  };

  fetch(0);
  put(0);
  __syncthreads();
  uint32_t half = 0;
  for (uint32_t k = 0; k < inputs; k += slice, half ^= 1) {
    const bool more = k + slice < inputs;
    if (more) fetch(k + slice);
    if (k + slice <= inputs) {
#pragma unroll
      for (uint32_t i = 0; i < slice; ++i) multiply_term(half, i);
    } else {
      for (uint32_t i = 0; i < inputs - k; ++i) multiply_term(half, i);
    }
    if ((k + slice) % block_terms == 0 || !more) {
#pragma unroll
      for (uint32_t r = 0; r < Tall; ++r) {
#pragma unroll
        for (uint32_t n = 0; n < wide; ++n) {
          total[r][n] += acc[r][n];
          acc[r][n] = 0.0f;
        }
      }
    }
    // The other half was last read before the barrier that ended the slice before this one.
    if (more) put(half ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (uint32_t r = 0; r < Tall; ++r) {
    const uint32_t down = line + r / 4 * 64 + r % 4;
#pragma unroll
    for (uint32_t n = 0; n < wide; ++n) {
      const uint32_t output = tile * static_cast<uint32_t>(tile_lanes) + column + n;
      if (down < rows_here && output < product.outputs) give(product, piece.to(down), output, total[r][n]);
    }
  }
}

}  // namespace continuo::cuda
