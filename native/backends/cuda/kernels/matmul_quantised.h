// Products of quantised rows and quantised matrices (jobs.h states the rule and the layout): integers in groups, whose
// dots are exact in any order, then one fma a group.
#pragma once

#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

// Where a tile's groups lie.
template <bool Ternary, uint32_t Group> struct Codes {
  static constexpr uint32_t row_bytes = tile_lanes * (Ternary ? 1 : 4);  // of 4 terms
  static constexpr uint32_t scales_at = Group / 4 * row_bytes;
  static constexpr uint32_t group_bytes = scales_at + static_cast<uint32_t>(PackedMatrix::scales_bytes);
  static CONTINUO_INLINE const char* tile(const Product& product, uint32_t index) {
    return static_cast<const char*>(product.data) +
           static_cast<size_t>(index) * pieces(product.inputs, Group) * group_bytes;
  }
};

// Four weights as signed bytes; ternary: outputs n, n + 16, n + 32 and n + 48 of a tile share their words.
CONTINUO_INLINE int32_t signed_q8(uint32_t word) { return static_cast<int32_t>(word ^ 0x80808080u); }
CONTINUO_INLINE int32_t ternary_codes(uint32_t word, uint32_t quarter) {
  return static_cast<int32_t>(word >> (2 * quarter) & 0x03030303u);
}
// code − 1 in every byte: the high bit, lent, keeps each byte to itself.
CONTINUO_INLINE int32_t signed_ternary(uint32_t word, uint32_t quarter) {
  return static_cast<int32_t>(((static_cast<uint32_t>(ternary_codes(word, quarter)) | 0x80808080u) - 0x01010101u) ^
                              0x80808080u);
}

constexpr uint32_t quantised_lanes = 16;
constexpr uint32_t outputs_of_lane(bool ternary) { return ternary ? 4 : 1; }
constexpr uint32_t quantised_few_threads(bool ternary, uint32_t rows) {
  return rows * outputs_of_lane(ternary) >= 8 ? few_threads / 2 : few_threads;
}

// Rows 0 … rows − 1 of products.quantised, [blocks][x_rows], into rows [first, first + rows) of y. As matmul_few: 16
// lanes side by side have 16 outputs, or ternary's whole tile, and a slot of them one block of 256 terms.
template <bool Ternary, uint32_t Group, uint32_t Rows>
__global__ void __launch_bounds__(quantised_few_threads(Ternary, Rows), 1)
    quantised_few(const CONTINUO_GRID_CONSTANT Products products, uint32_t x_rows, size_t first, uint32_t rows,
                  uint32_t passes) {
  using Layout = Codes<Ternary, Group>;
  constexpr uint32_t each = outputs_of_lane(Ternary), wide = quantised_lanes * each;
  constexpr uint32_t batch = 32, per_batch = batch * 4 / Group, per_block = block_terms / Group;  // words; groups
  // In shared memory a slot has the terms of its rows, then their scales and corrections. In a QuantisedBlock, as
  // words:
  constexpr uint32_t scales_at = block_terms / 4, corrections_at = scales_at + block_terms / 32;
  constexpr uint32_t extras = per_batch * (Ternary ? 2 : 1), extras_at = Rows * batch,
                     brought_words = extras_at + Rows * extras;
  static_assert(offsetof(QuantisedBlock, scales) == scales_at * 4 &&
                offsetof(QuantisedBlock, corrections) == corrections_at * 4);
  constexpr uint32_t terms_words = (brought_words + 7) / 4 * 4, sums_words = Rows * wide;
  constexpr uint32_t slot_words = terms_words > sums_words ? terms_words : sums_words;
  constexpr uint32_t most_slots = quantised_few_threads(Ternary, Rows) / quantised_lanes;
  alignas(16) __shared__ uint32_t shared[most_slots * slot_words];

  const uint32_t at = product_at(products, blockIdx.x);
  const Product& product = products.of[at];
  const uint32_t unit = (blockIdx.x - products.begin[at]) / passes, pass = (blockIdx.x - products.begin[at]) % passes;
  const uint32_t output = unit * wide, groups = pieces(product.inputs, Group),
                 blocks = pieces(product.inputs, block_terms);
  const size_t row = pass * pass_rows;
  const uint32_t rows_here = rows - pass * pass_rows < Rows ? rows - pass * pass_rows : Rows;
  const uint32_t lane = threadIdx.x % quantised_lanes, slot = threadIdx.x / quantised_lanes,
                 slots = blockDim.x / quantised_lanes;
  const uint32_t in_tile = output % tile_lanes + lane;
  const char* const tile = Layout::tile(product, output / tile_lanes);
  const QuantisedBlock* const x = products.quantised[at] + row;
  uint32_t* const terms = shared + slot * slot_words;

  Outputs<Rows, wide> outputs;
  for (uint32_t turn = 0; turn < blocks; turn += slots) {
    const uint32_t block = turn + slot, begin = block * per_block;
    const uint32_t end = begin + per_block < groups ? begin + per_block : groups;
    // A warp goes on as long as the first of its slots, which has the most groups.
    const uint32_t warp_begin = (turn + threadIdx.x / 32 * 32 / quantised_lanes) * per_block;
    const uint32_t steps =
        warp_begin < groups ? pieces(groups - warp_begin < per_block ? groups - warp_begin : per_block, per_batch) : 0;
    float acc[each][Rows] = {};
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t from = begin + step * per_batch, left = from < end ? end - from : 0;
      uint32_t words[batch] = {};
      F16 scales[per_batch][each] = {};
#pragma unroll
      for (uint32_t g = 0; g < per_batch; ++g) {
        if (g >= left) break;
        const char* const group = tile + static_cast<size_t>(from + g) * Layout::group_bytes;
#pragma unroll
        for (uint32_t i = 0; i < Group / 4; ++i) {
          words[g * (Group / 4) + i] =
              load_once(reinterpret_cast<const uint32_t*>(group + i * Layout::row_bytes) + (Ternary ? lane : in_tile));
        }
#pragma unroll
        for (uint32_t e = 0; e < each; ++e)
          scales[g][e] =
              load_once(reinterpret_cast<const F16*>(group + Layout::scales_at) + in_tile + e * quantised_lanes);
      }
      // Terms, scales and corrections of the rows. What stands for those that are not there is never used.
      uint32_t brought[(brought_words + quantised_lanes - 1) / quantised_lanes];
#pragma unroll
      for (uint32_t i = 0; i < brought_words; i += quantised_lanes) {
        const uint32_t to = lane + i, extra = (to - extras_at) % extras;
        const uint32_t r = to < extras_at ? to / batch : (to - extras_at) / extras;
        const uint32_t word =
            to < extras_at
                ? step * batch + to % batch
                : step * per_batch + (extra < per_batch ? scales_at + extra : corrections_at + extra - per_batch);
        const QuantisedBlock* const own =
            x + (block < blocks && r < rows_here ? static_cast<size_t>(block) * x_rows + r : 0);
        brought[i / quantised_lanes] = load_once(reinterpret_cast<const uint32_t*>(own) + word);
      }
      if (step > 0) __syncwarp();
#pragma unroll
      for (uint32_t i = 0; i < brought_words; i += quantised_lanes) {
        if (i + quantised_lanes <= brought_words || lane + i < brought_words)
          terms[lane + i] = brought[i / quantised_lanes];
      }
      __syncwarp();
#pragma unroll
      for (uint32_t g = 0; g < per_batch; ++g) {
        if (g >= left) break;
        int32_t dot[each][Rows] = {};
        if constexpr (Ternary) {
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
            for (uint32_t e = 0; e < each; ++e)
              dot[e][r] = static_cast<int32_t>(terms[extras_at + r * extras + per_batch + g]);
          }
        }
#pragma unroll
        for (uint32_t i = 0; i < Group / 4; i += 4) {
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r) {
            const FourWords term = *reinterpret_cast<const FourWords*>(terms + r * batch + g * (Group / 4) + i);
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
              const uint32_t word = words[g * (Group / 4) + i + j];
#pragma unroll
              for (uint32_t e = 0; e < each; ++e) {
                dot[e][r] = __dp4a(Ternary ? ternary_codes(word, e) : signed_q8(word), static_cast<int32_t>(term.at[j]),
                                   dot[e][r]);
              }
            }
          }
        }
#pragma unroll
        for (uint32_t e = 0; e < each; ++e) {
          const float scale = widen(scales[g][e]);
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r)
            acc[e][r] = fma(to_float(dot[e][r]), scale * cast<float>(terms[extras_at + r * extras + g]), acc[e][r]);
        }
      }
    }
    __syncthreads();
    float* const sums = reinterpret_cast<float*>(shared);
#pragma unroll
    for (uint32_t e = 0; e < each; ++e) {
#pragma unroll
      for (uint32_t r = 0; r < Rows; ++r) sums[slot * sums_words + r * wide + e * quantised_lanes + lane] = acc[e][r];
    }
    __syncthreads();
    outputs.add(sums, blocks - turn < slots ? blocks - turn : slots);
    if (turn + slots < blocks) __syncthreads();
  }
  outputs.give(product, first + row, rows_here, output);
}

// As matmul_many: a square of 64 outputs and 64 rows, 4 of each for a thread, walked in slices of 64 terms: one group,
// or two.
template <bool Ternary, uint32_t Group> __global__ void __launch_bounds__(many_threads, 2)
    quantised_many(const CONTINUO_GRID_CONSTANT Products products, uint32_t x_rows, size_t first, uint32_t rows,
                   uint32_t passes) {
  using Layout = Codes<Ternary, Group>;
  constexpr uint32_t slice = 16, height = 64, per_slice = slice * 4 / Group,
                     per_block = block_terms / Group;  // words, rows, groups
  constexpr uint32_t row_words = height + 4;
  alignas(16) __shared__ uint32_t codes[2][slice * tile_lanes];
  alignas(16) __shared__ uint32_t terms[2][slice * row_words];
  alignas(16) __shared__ float weight_scales[2][per_slice][tile_lanes];
  alignas(16) __shared__ float row_scales[2][per_slice][height];

  const uint32_t at = product_at(products, blockIdx.x);
  const Product& product = products.of[at];
  const uint32_t index = (blockIdx.x - products.begin[at]) / passes, pass = (blockIdx.x - products.begin[at]) % passes;
  const uint32_t groups = pieces(product.inputs, Group);
  const size_t row = static_cast<size_t>(pass) * height;
  const uint32_t rows_here = rows - pass * height < height ? rows - pass * height : height;
  const char* const tile = Layout::tile(product, index);
  const QuantisedBlock* const x = products.quantised[at] + row;
  const uint32_t t = threadIdx.x, column = t % 16 * 4, line = t / 16 * 4;

  // What a thread brings of a slice: the codes of 4 terms and 4 outputs, 16 terms of a row, and one scale.
  const uint32_t own_code = t / 16, own_row = t / 4, own_four = t % 4 * 4, own_scale = t % 64, own_group = t / 64 % 2;
  FourWords next_codes{}, next_terms{};
  float next_scale = 0.0f;
  const auto fetch = [&](uint32_t from) {  // the slice's first group
    const uint32_t code_group = from + own_code / (Group / 4);
    if (code_group < groups) {
      const char* const words =
          tile + static_cast<size_t>(code_group) * Layout::group_bytes + own_code % (Group / 4) * Layout::row_bytes;
      next_codes = *reinterpret_cast<const FourWords*>(words + (Ternary ? column % 16 : column) * 4);
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        next_codes.at[j] = static_cast<uint32_t>(Ternary ? signed_ternary(next_codes.at[j], column / 16)
                                                         : signed_q8(next_codes.at[j]));
      }
    }
    const QuantisedBlock* const block = x + static_cast<size_t>(from / per_block) * x_rows;
    const uint32_t offset = from % per_block;
    if (own_row < rows_here)
      next_terms = *reinterpret_cast<const FourWords*>(block[own_row].terms + offset * Group + own_four * 4);
    if (own_group >= per_slice || from + own_group >= groups) return;
    if (t < many_threads / 2)
      next_scale =
          widen(load_once(reinterpret_cast<const F16*>(
                              tile + static_cast<size_t>(from + own_group) * Layout::group_bytes + Layout::scales_at) +
                          own_scale));
    else if (own_scale < rows_here)
      next_scale = load_once(block[own_scale].scales + offset + own_group);
  };
  const auto put = [&](uint32_t half) {
    *reinterpret_cast<FourWords*>(codes[half] + own_code * tile_lanes + column) = next_codes;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) terms[half][(own_four + j) * row_words + own_row] = next_terms.at[j];
    if (own_group < per_slice)
      (t < many_threads / 2 ? weight_scales : row_scales)[half][own_group][own_scale] = next_scale;
  };

  float acc[4][4] = {}, total[4][4] = {};
  fetch(0);
  put(0);
  __syncthreads();
  uint32_t half = 0;
  for (uint32_t from = 0; from < groups; from += per_slice, half ^= 1) {
    const bool more = from + per_slice < groups;
    if (more) fetch(from + per_slice);
#pragma unroll
    for (uint32_t g = 0; g < per_slice; ++g) {
      if (from + g >= groups) break;
      int32_t dot[4][4] = {};
#pragma unroll
      for (uint32_t i = g * (Group / 4); i < (g + 1) * (Group / 4); ++i) {
        const FourWords code = *reinterpret_cast<const FourWords*>(codes[half] + i * tile_lanes + column);
        const FourWords term = *reinterpret_cast<const FourWords*>(terms[half] + i * row_words + line);
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
          for (uint32_t n = 0; n < 4; ++n)
            dot[r][n] = __dp4a(static_cast<int32_t>(code.at[n]), static_cast<int32_t>(term.at[r]), dot[r][n]);
        }
      }
      const Four weight_scale = *reinterpret_cast<const Four*>(weight_scales[half][g] + column);
      const Four row_scale = *reinterpret_cast<const Four*>(row_scales[half][g] + line);
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n)
          acc[r][n] = fma(to_float(dot[r][n]), weight_scale.at[n] * row_scale.at[r], acc[r][n]);
      }
    }
    if ((from + per_slice) % per_block == 0 || !more) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n) {
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
  for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      const uint32_t output = index * static_cast<uint32_t>(tile_lanes) + column + n;
      if (line + r < rows_here && output < product.outputs) give(product, first + row + line + r, output, total[r][n]);
    }
  }
}

}  // namespace continuo::cuda
