// Products of quantised rows and quantised matrices (jobs.h states the rule, codes.h reads the layouts): integers in
// groups, whose dots are exact in any order, then the fmas of a group.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/codes.h"
#include "backends/cuda/kernels/cuts.h"
#include "backends/cuda/kernels/launch.h"

namespace continuo::cuda {

constexpr uint32_t quantised_lanes = 16;
template <class Codes> constexpr uint32_t quantised_few_threads(uint32_t rows) {
  return rows * Codes::each >= 8 ? few_threads / 2 : few_threads;
}

// As matmul_few: 16 lanes side by side have 16 outputs, or ternary's whole tile, and a slot of them one block of 256
// terms.
template <class Codes, uint32_t Rows, class Cut>
__global__ void __launch_bounds__(quantised_few_threads<Codes>(Rows), 1)
    quantised_few(const CONTINUO_GRID_CONSTANT Cut cut) {
  constexpr uint32_t each = Codes::each, wide = quantised_lanes * each, group_words = Codes::group / 4;  // of terms
  constexpr uint32_t per_batch = Codes::batch, per_block = block_terms / Codes::group;                   // groups
  constexpr uint32_t batch = per_batch * group_words, half_words = group_words / Codes::halves;
  // In shared memory a slot has the terms of its rows, then their scales and corrections. In a QuantisedBlock, as
  // words:
  constexpr uint32_t scales_at = block_terms / 4, corrections_at = scales_at + block_terms / 32;
  constexpr uint32_t extras = per_batch * (Codes::corrected ? 2 : 1), extras_at = Rows * batch,
                     brought_words = extras_at + Rows * extras;
  static_assert(offsetof(QuantisedBlock, scales) == scales_at * 4 &&
                offsetof(QuantisedBlock, corrections) == corrections_at * 4);
  constexpr uint32_t terms_words = (brought_words + 7) / 4 * 4, sums_words = Rows * wide;
  constexpr uint32_t slot_words = terms_words > sums_words ? terms_words : sums_words;
  constexpr uint32_t most_slots = quantised_few_threads<Codes>(Rows) / quantised_lanes;
  alignas(16) __shared__ uint32_t shared[most_slots * slot_words];

  const auto piece = cut.piece(blockIdx.x);
  const Product& product = piece.product;
  const uint32_t output = piece.unit * wide, groups = pieces(product.inputs, Codes::group),
                 blocks = pieces(product.inputs, block_terms);
  if (cut.idle(piece, output, wide)) return;
  const uint32_t lane = threadIdx.x % quantised_lanes, slot = threadIdx.x / quantised_lanes,
                 slots = blockDim.x / quantised_lanes;
  const uint32_t in_tile = output % tile_lanes + lane;
  const char* const tile =
      static_cast<const char*>(piece.data) + output / tile_lanes * Codes::tile_bytes(product.inputs);
  uint32_t* const terms = shared + slot * slot_words;

  Outputs<Rows, wide> outputs;
  for (uint32_t turn = 0; turn < blocks; turn += slots) {
    const uint32_t block = turn + slot, begin = block * per_block;
    const uint32_t end = begin + per_block < groups ? begin + per_block : groups;
    // A warp goes on as long as the first of its slots, which has the most groups.
    const uint32_t warp_begin = (turn + threadIdx.x / 32 * 32 / quantised_lanes) * per_block;
    const uint32_t steps =
        warp_begin < groups ? pieces(groups - warp_begin < per_block ? groups - warp_begin : per_block, per_batch) : 0;
    const char* const own_block = tile + static_cast<size_t>(block) * Codes::block_bytes;
    float acc[each][Rows] = {};
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t from = step * per_batch, left = begin + from < end ? end - begin - from : 0;
      uint32_t words[per_batch][Codes::words] = {};
      typename Codes::Stored scales[per_batch][each] = {};
#pragma unroll
      for (uint32_t g = 0; g < per_batch; ++g) {
        if (g >= left) break;
#pragma unroll
        for (uint32_t i = 0; i < Codes::words; ++i)
          words[g][i] = Codes::word(own_block, from + g, i, each > 1 ? lane : in_tile);
#pragma unroll
        for (uint32_t e = 0; e < each; ++e)
          scales[g][e] = Codes::scales(own_block, from + g, in_tile + e * quantised_lanes);
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
            piece.quantised +
            (block < blocks && r < piece.rows ? static_cast<size_t>(block) * cut.x_rows + piece.quantised_row(r) : 0);
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
        const uint32_t* const own_extras = terms + extras_at + g;
        const auto correction = [&](uint32_t r) {
          return Codes::corrected ? static_cast<int32_t>(own_extras[r * extras + per_batch]) : 0;
        };
        typename Codes::Scales scale[each];
#pragma unroll
        for (uint32_t e = 0; e < each; ++e) scale[e] = widen(scales[g][e]);
        int32_t total[each][Rows] = {};
#pragma unroll
        for (uint32_t half = 0; half < Codes::halves; ++half) {
          int32_t dot[each][Rows];
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
            for (uint32_t e = 0; e < each; ++e) dot[e][r] = Codes::start(correction(r), half);
          }
#pragma unroll
          for (uint32_t i = half * half_words; i < (half + 1) * half_words; i += 4) {
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
              const FourWords term = *reinterpret_cast<const FourWords*>(terms + r * batch + g * group_words + i);
#pragma unroll
              for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
                for (uint32_t e = 0; e < each; ++e) {
                  dot[e][r] = __dp4a(static_cast<int32_t>(Codes::codes(words[g], i + j, e)),
                                     static_cast<int32_t>(term.at[j]), dot[e][r]);
                }
              }
            }
          }
#pragma unroll
          for (uint32_t e = 0; e < each; ++e) {
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) total[e][r] += scaled(scale[e], half, dot[e][r]);
          }
        }
#pragma unroll
        for (uint32_t e = 0; e < each; ++e) {
#pragma unroll
          for (uint32_t r = 0; r < Rows; ++r)
            acc[e][r] =
                with_group(acc[e][r], total[e][r], scale[e], cast<float>(own_extras[r * extras]), correction(r));
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
  outputs.give(piece, output);
}

// As matmul_many: a square of 64 outputs and 64 rows, 4 of each for a thread, walked in slices of 64 terms: one group,
// or two. Codes are less their zero here, so only minima need the corrections of the rows.
template <class Codes> __global__ void __launch_bounds__(many_threads, 2)
    quantised_many(const CONTINUO_GRID_CONSTANT InOrder cut) {
  using Scales = typename Codes::Scales;
  struct alignas(16) FourScales {
    Scales at[4];
  };
  constexpr uint32_t slice = 16, height = 64, group_words = Codes::group / 4;                  // words, rows, words
  constexpr uint32_t per_slice = slice / group_words, per_block = block_terms / Codes::group;  // groups
  constexpr uint32_t row_words = height + 4, half_words = group_words / Codes::halves;
  alignas(16) __shared__ uint32_t codes[2][slice * tile_lanes];
  alignas(16) __shared__ uint32_t terms[2][slice * row_words];
  alignas(16) __shared__ Scales weight_scales[2][per_slice][tile_lanes];
  alignas(16) __shared__ float row_scales[2][per_slice][height];
  alignas(16) __shared__ int32_t row_corrections[2][per_slice][Codes::minima ? height : 4];

  const auto piece = cut.piece(blockIdx.x);
  const Product& product = piece.product;
  const uint32_t groups = pieces(product.inputs, Codes::group);
  const char* const tile = static_cast<const char*>(piece.data) + piece.unit * Codes::tile_bytes(product.inputs);
  const QuantisedBlock* const x = piece.quantised + piece.quantised_row(0);
  const uint32_t t = threadIdx.x, column = t % 16 * 4, line = t / 16 * 4;

  // What a thread brings of a slice: the codes of 4 terms and 4 outputs, 16 terms of a row, and the scales of an output
  // or a row.
  const uint32_t own_code = t / 16, own_row = t / 4, own_four = t % 4 * 4, own_scale = t % 64, own_group = t / 64 % 2;
  const bool of_weights = t < many_threads / 2;
  FourWords next_codes{}, next_terms{};
  typename Codes::Stored next_scales{};
  float next_row_scale = 0.0f;
  int32_t next_correction = 0;
  const auto fetch = [&](uint32_t from) {  // the slice's first group
    const uint32_t offset = from % per_block, code_group = own_code / group_words;
    const char* const block = tile + static_cast<size_t>(from / per_block) * Codes::block_bytes;
    if (from + code_group < groups)
      next_codes = Codes::signed_codes(block, offset + code_group, own_code % group_words, column);
    const QuantisedBlock* const rows = x + static_cast<size_t>(from / per_block) * cut.x_rows;
    if (own_row < piece.rows)
      next_terms = *reinterpret_cast<const FourWords*>(rows[own_row].terms + offset * Codes::group + own_four * 4);
    if (own_group >= per_slice || from + own_group >= groups) return;
    if (of_weights) {
      next_scales = Codes::scales(block, offset + own_group, own_scale);
    } else if (own_scale < piece.rows) {
      next_row_scale = load_once(rows[own_scale].scales + offset + own_group);
      if constexpr (Codes::minima) next_correction = load_once(rows[own_scale].corrections + offset + own_group);
    }
  };
  const auto put = [&](uint32_t half) {
    *reinterpret_cast<FourWords*>(codes[half] + own_code * tile_lanes + column) = next_codes;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) terms[half][(own_four + j) * row_words + own_row] = next_terms.at[j];
    if (own_group >= per_slice) return;
    if (of_weights) {
      weight_scales[half][own_group][own_scale] = widen(next_scales);
    } else {
      row_scales[half][own_group][own_scale] = next_row_scale;
      if constexpr (Codes::minima) row_corrections[half][own_group][own_scale] = next_correction;
    }
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
      const FourScales weight_scale = *reinterpret_cast<const FourScales*>(weight_scales[half][g] + column);
      const Four row_scale = *reinterpret_cast<const Four*>(row_scales[half][g] + line);
      int32_t whole[4][4] = {};
#pragma unroll
      for (uint32_t part = 0; part < Codes::halves; ++part) {
        int32_t dot[4][4] = {};
#pragma unroll
        for (uint32_t i = g * group_words + part * half_words; i < g * group_words + (part + 1) * half_words; ++i) {
          const FourWords code = *reinterpret_cast<const FourWords*>(codes[half] + i * tile_lanes + column);
          const FourWords term = *reinterpret_cast<const FourWords*>(terms[half] + i * row_words + line);
#pragma unroll
          for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
            for (uint32_t n = 0; n < 4; ++n)
              dot[r][n] = __dp4a(static_cast<int32_t>(code.at[n]), static_cast<int32_t>(term.at[r]), dot[r][n]);
          }
        }
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
          for (uint32_t n = 0; n < 4; ++n) whole[r][n] += scaled(weight_scale.at[n], part, dot[r][n]);
        }
      }
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        const int32_t correction = Codes::minima ? row_corrections[half][g][line + r] : 0;
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n)
          acc[r][n] = with_group(acc[r][n], whole[r][n], weight_scale.at[n], row_scale.at[r], correction);
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
      const uint32_t output = piece.unit * static_cast<uint32_t>(tile_lanes) + column + n;
      if (line + r < piece.rows && output < product.outputs) give(product, piece.to(line + r), output, total[r][n]);
    }
  }
}

}  // namespace continuo::cuda
