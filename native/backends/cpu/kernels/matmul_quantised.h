// Products of quantised rows and quantised matrices (kernels.h states the rule and the layout).
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/dot.h"
#include "backends/cpu/kernels/panels.h"

namespace continuo::CONTINUO_ISA {

// Integer sums and float sums of a panel stay in registers side by side.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr size_t quantised_vectors = 4, quantised_rows = 3;
#elif defined(__AVX2__)
constexpr size_t quantised_vectors = 2, quantised_rows = 3;
#else
constexpr size_t quantised_vectors = 1, quantised_rows = 4;
#endif
constexpr size_t quantised_lanes = quantised_vectors * width;

// The groups of one chunk, codes as u8: group g's codes are [group/4][64][4] at codes + g·codes_step, its scales [64]
// at scales + g·scales_step bytes.
struct Groups {
  const uint8_t* codes;
  size_t codes_step;
  const char* scales;
  size_t scales_step;
  size_t count;
};

template <size_t Rows, size_t Group, size_t Lines>
CONTINUO_INLINE void quantised_panel(const Groups& w, size_t lane, const QuantisedBlock* x, const Sums& sums,
                                     Ahead<Lines> ahead) {
  Vec acc[Rows][quantised_vectors] = {};
  for (size_t g = 0; g < w.count; ++g) {
    const uint8_t* codes = w.codes + g * w.codes_step + lane * 4;
    Ints dot[Rows][quantised_vectors];
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < quantised_vectors; ++v) dot[r][v] = splat_int(x[r].corrections[g]);
    }
#pragma GCC unroll 2
    for (size_t k = 0; k < Group; k += 4) {
      ahead.fetch();
      Codes weights[quantised_vectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < quantised_vectors; ++v) weights[v] = load_codes(codes + k * tile_lanes + v * width * 4);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Terms terms = load_terms(x[r].terms + g * Group + k);
#pragma GCC unroll 16
        for (size_t v = 0; v < quantised_vectors; ++v) dot[r][v] = dot4(dot[r][v], weights[v], terms);
      }
    }
    const F16* scales = reinterpret_cast<const F16*>(w.scales + g * w.scales_step) + lane;
#pragma GCC unroll 16
    for (size_t v = 0; v < quantised_vectors; ++v) {
      const Vec scale = load_weights(scales + v * width);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r)
        acc[r][v] = fma(__builtin_convertvector(dot[r][v], Vec), scale * splat<Vec>(x[r].scales[g]), acc[r][v]);
    }
  }
  add_sums(acc, sums);
}

// 2-bit codes [count][group/4][64] bytes: bits 2i of byte b belong to the code at byte b of the i-th quarter of 256
// bytes.
inline void unpack(const char* packed, size_t step, size_t count, size_t group, uint8_t* out) {
  constexpr size_t wide = width * 4;
  for (size_t g = 0; g < count; ++g) {
    for (size_t k = 0; k < group; k += 4, out += 256) {
      for (size_t b = 0; b < 64; b += wide) {
        const Ints bits = load_ints(packed + g * step + k * 16 + b);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const Ints codes = (bits >> (2 * i)) & 0x03030303;
          __builtin_memcpy(out + i * 64 + b, &codes, sizeof codes);
        }
      }
    }
  }
}

template <size_t Group> inline void quantised_as(const PackedMatrix& m, const QuantisedBlock* x, size_t x_rows,
                                                 float* y, size_t row, size_t rows, size_t tile_begin,
                                                 size_t tile_end) {
  constexpr size_t per_block = block_terms / Group;
  const size_t groups = (m.inputs + Group - 1) / Group;
  const size_t codes_bytes = m.group_bytes() - PackedMatrix::scales_bytes;
  // The groups of a tile from g on.
  const auto chunk = [&](size_t tile, size_t g) {
    return static_cast<const char*>(m.data) + (tile * groups + g) * m.group_bytes();
  };
  alignas(64) uint8_t unpacked[block_terms * tile_lanes];
  // Rows × one chunk, while the chunk after it is fetched.
  const auto multiply_chunk = [&]<size_t Lines>(Ahead<Lines> ahead, size_t tile, size_t g) {
    const char* at = chunk(tile, g);
    Groups w{reinterpret_cast<const uint8_t*>(at), m.group_bytes(), at + codes_bytes, m.group_bytes(),
             least(per_block, groups - g)};
    if (m.dtype == Dtype::ternary) {
      unpack(at, m.group_bytes(), w.count, Group, unpacked);
      w.codes = unpacked;
      w.codes_step = Group * tile_lanes;
    }
    const size_t n = tile * tile_lanes;
    const Sums sums{y + row * m.outputs + n, m.outputs, m.outputs - n, g == 0};
    const QuantisedBlock* terms = x + g / per_block * x_rows + row;
    const size_t panels = (rows + quantised_rows - 1) / quantised_rows * (tile_lanes / quantised_lanes);
    const size_t fetches = Group / 4 * w.count;
    ahead.step = m.group_bytes() * w.count / panels / fetches;
    each_panel<quantised_rows>(rows, [&]<size_t Rows>(size_t first) CONTINUO_LAMBDA {
      for (size_t lane = 0; lane < least(tile_lanes, sums.lanes); lane += quantised_lanes) {
        quantised_panel<Rows, Group>(w, lane, terms + first, sums.at(first, lane), ahead);
        ahead.at += ahead.step * fetches;
      }
    });
  };
  // Few rows: in order of address. Many: blocks outermost, as in matmul.h.
  if (rows <= quantised_rows) {
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      for (size_t g = 0; g < groups; g += per_block)
        multiply_chunk(Ahead<few_lines(quantised_lanes, 5)>{chunk(tile, g + per_block), 0}, tile, g);
    }
    return;
  }
  for (size_t g = 0; g < groups; g += per_block) {
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      multiply_chunk(Ahead<3>{tile + 1 < tile_end ? chunk(tile + 1, g) : chunk(tile_begin, g + per_block), 0}, tile, g);
    }
  }
}

inline void matmul_quantised(const PackedMatrix& m, const QuantisedBlock* x, size_t x_rows, float* y, size_t row,
                             size_t rows, size_t tile, size_t tile_end) {
  if (m.group == 32)
    quantised_as<32>(m, x, x_rows, y, row, rows, tile, tile_end);
  else
    quantised_as<64>(m, x, x_rows, y, row, rows, tile, tile_end);
}

}  // namespace continuo::CONTINUO_ISA
