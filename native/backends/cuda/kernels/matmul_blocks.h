// Products of quantised rows and matrices of q4, q4_k and q6_k (jobs.h states the rule, packed_matrix.h the layout). A
// thread has one output of one row, and a block the 64 outputs of a tile, so that codes and scales are read side by
// side.
#pragma once

#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

constexpr uint32_t block_threads = static_cast<uint32_t>(tile_lanes);

CONTINUO_INLINE float half_of(const char* scales, uint32_t lane) {
  return widen(load_once(reinterpret_cast<const F16*>(scales) + lane));
}

// Eight terms with codes in 4 bits: Σ code · term.
CONTINUO_INLINE int32_t dot_nibbles(int32_t dot, uint32_t word, const int32_t* terms) {
  dot = __dp4a(static_cast<int32_t>(word & 0x0F0F0F0Fu), terms[0], dot);
  return __dp4a(static_cast<int32_t>(word >> 4 & 0x0F0F0F0Fu), terms[1], dot);
}

// The sum of one block of 256 terms.
template <Dtype Kind>
CONTINUO_INLINE float block_product(const char* at, const QuantisedBlock& x, uint32_t lane, uint32_t groups) {
  const auto* const terms = reinterpret_cast<const int32_t*>(x.terms);
  const auto word_at = [&](uint32_t offset, uint32_t line) {
    return load_once(reinterpret_cast<const uint32_t*>(at + offset + line * 256) + lane);
  };
  float acc = 0.0f;
  for (uint32_t g = 0; g < groups; ++g) {
    if constexpr (Kind == Dtype::q6_k) {
      int32_t total = 0;
      for (uint32_t half = 2 * g; half < 2 * g + 2; ++half) {
        const int32_t sum = half % 2 == 0 ? first_half(x.corrections[g]) : second_half(x.corrections[g]);
        int32_t dot = -zero_code(Kind) * sum;
        const uint32_t high = word_at(PackedMatrix::q6_k_high, half);
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t low = word_at(PackedMatrix::q6_k_low, 2 * half + i / 2) >> i % 2 * 4 & 0x0F0F0F0Fu;
          const uint32_t code = low | (high >> 2 * i & 0x03030303u) << 4;
          dot = __dp4a(static_cast<int32_t>(code), terms[half * 4 + i], dot);
        }
        total += static_cast<int8_t>(at[PackedMatrix::q6_k_scales + half * tile_lanes + lane]) * dot;
      }
      acc = fma(to_float(total), half_of(at, lane) * x.scales[g], acc);
    } else {
      constexpr bool k_block = Kind == Dtype::q4_k;
      constexpr uint32_t codes_bytes = PackedMatrix::q4_k_codes;
      constexpr uint32_t step = k_block ? PackedMatrix::q4_k_group : codes_bytes + PackedMatrix::scales_bytes;
      const uint32_t offset = (k_block ? PackedMatrix::q4_k_head : 0) + g * step;
      int32_t dot = k_block ? 0 : x.corrections[g];
      for (uint32_t line = 0; line < 4; ++line) dot = dot_nibbles(dot, word_at(offset, line), terms + g * 8 + line * 2);
      const char* const scales = at + offset + codes_bytes;
      if constexpr (k_block) {
        const int32_t scale = static_cast<uint8_t>(scales[lane]);
        const int32_t minimum = static_cast<uint8_t>(scales[tile_lanes + lane]);
        acc = fma(to_float(scale * dot), half_of(at, lane) * x.scales[g], acc);
        acc = fma(to_float(minimum * x.corrections[g]), half_of(at + PackedMatrix::scales_bytes, lane) * x.scales[g],
                  acc);
      } else {
        acc = fma(to_float(dot), half_of(scales, lane) * x.scales[g], acc);
      }
    }
  }
  return acc;
}

// Rows 0 … rows − 1 of products.quantised, [blocks][x_rows], into rows [first, first + rows) of y. products.begin
// counts the tiles times the rows.
template <Dtype Kind> __global__ void __launch_bounds__(block_threads)
    block_products(const CONTINUO_GRID_CONSTANT Products products, uint32_t x_rows, size_t first, uint32_t rows) {
  constexpr uint32_t q4_group = PackedMatrix::q4_k_codes + PackedMatrix::scales_bytes;
  constexpr uint32_t block_bytes = Kind == Dtype::q6_k   ? PackedMatrix::q6_k_bytes
                                   : Kind == Dtype::q4_k ? PackedMatrix::q4_k_bytes
                                                         : 8 * q4_group;
  const uint32_t at = product_at(products, blockIdx.x);
  const Product& product = products.of[at];
  const uint32_t unit = blockIdx.x - products.begin[at], tile = unit / rows, row = unit % rows, lane = threadIdx.x;
  const uint32_t blocks = pieces(product.inputs, block_terms), groups = pieces(product.inputs, 32);
  const size_t tile_bytes =
      Kind == Dtype::q4 ? static_cast<size_t>(groups) * q4_group : static_cast<size_t>(blocks) * block_bytes;
  const char* const own = static_cast<const char*>(product.data) + tile * tile_bytes;
  float total = 0.0f;
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t left = groups - block * 8;
    const QuantisedBlock& x = products.quantised[at][static_cast<size_t>(block) * x_rows + row];
    total += block_product<Kind>(own + static_cast<size_t>(block) * block_bytes, x, lane, left < 8 ? left : 8);
  }
  const uint32_t output = tile * static_cast<uint32_t>(tile_lanes) + lane;
  if (output < product.outputs) give(product, first + row, output, total);
}

}  // namespace continuo::cuda
