// Products of quantised rows and matrices of q4, q4_k and q6_k (jobs.h states the rule, packed_matrix.h the layout).
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cpu/kernels/matmul_quantised.h"

namespace continuo::CONTINUO_ISA {

// Bytes of type T, u8 or i8, as a float for each lane. GCC widens vectors of bytes lane by lane unless an instruction
// is named.
template <class T> CONTINUO_INLINE Vec load_whole(const void* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return to_float(std::is_unsigned_v<T> ? (Ints)_mm512_maskz_cvtepu8_epi32(0xFFFF, bytes)
                                        : (Ints)_mm512_maskz_cvtepi8_epi32(0xFFFF, bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return to_float(std::is_unsigned_v<T> ? (Ints)_mm256_cvtepu8_epi32(bytes) : (Ints)_mm256_cvtepi8_epi32(bytes));
#else
  typedef T Bytes __attribute__((vector_size(width)));
  Bytes bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return to_float(__builtin_convertvector(bytes, Ints));
#endif
}

CONTINUO_INLINE Vec load_halves(const void* p) { return load_weights(static_cast<const F16*>(p)); }

// Adds the products of 8 terms with codes in 4 bits.
CONTINUO_INLINE Ints dot_nibbles(Ints dot, Ints w, const int8_t* terms) {
  dot = dot4(dot, codes_of(w & 0x0F0F0F0F), load_terms(terms));
  return dot4(dot, codes_of((w >> 4) & 0x0F0F0F0F), load_terms(terms + 4));
}

// One chunk: `count` groups of `Group` terms from `at` on.
template <Dtype Kind, size_t Group, size_t Rows, size_t Lines>
CONTINUO_INLINE void nibble_panel(const char* at, size_t count, size_t lane, const QuantisedBlock* x, const Sums& sums,
                                  Ahead<Lines> ahead) {
  constexpr bool k_block = Kind == Dtype::q4_k;
  constexpr size_t codes_bytes = Group * tile_lanes / 2;
  constexpr size_t step = k_block ? PackedMatrix::q4_k_group : codes_bytes + PackedMatrix::scales_bytes;
  const char* group = at + (k_block ? PackedMatrix::q4_k_head : 0);
  Vec acc[Rows][quantised_vectors] = {};
  for (size_t g = 0; g < count; ++g, group += step) {
    Ints dot[Rows][quantised_vectors];
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < quantised_vectors; ++v) dot[r][v] = splat_int(k_block ? 0 : x[r].corrections[g]);
    }
#pragma GCC unroll 2
    for (size_t k = 0; k < Group; k += 8) {
      ahead.fetch();
#pragma GCC unroll 16
      for (size_t v = 0; v < quantised_vectors; ++v) {
        const Ints w = load_ints(group + k / 8 * 256 + lane * 4 + v * width * 4);
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r) dot[r][v] = dot_nibbles(dot[r][v], w, x[r].terms + g * Group + k);
      }
    }
#pragma GCC unroll 16
    for (size_t v = 0; v < quantised_vectors; ++v) {
      const size_t own = lane + v * width;
      if constexpr (k_block) {
        const Vec d = load_halves(at + own * 2), dmin = load_halves(at + PackedMatrix::scales_bytes + own * 2);
        // Whole scales times integer sums are below 2²⁴: as floats they are the same numbers, once + 0 took a zero's
        // sign.
        const Vec scale = load_whole<uint8_t>(group + codes_bytes + own);
        const Vec minimum = load_whole<uint8_t>(group + codes_bytes + tile_lanes + own);
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r) {
          const Vec x_scale = splat<Vec>(x[r].scales[g]);
          const Vec negative_sum = splat<Vec>(static_cast<float>(x[r].corrections[g]));
          acc[r][v] = fma(fma(scale, to_float(dot[r][v]), Vec{}), d * x_scale, acc[r][v]);
          acc[r][v] = fma(fma(minimum, negative_sum, Vec{}), dmin * x_scale, acc[r][v]);
        }
      } else {
        const Vec scale = load_halves(group + codes_bytes + own * 2);
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r)
          acc[r][v] = fma(to_float(dot[r][v]), scale * splat<Vec>(x[r].scales[g]), acc[r][v]);
      }
    }
  }
  add_sums(acc, sums);
}

// One chunk of q6_k: 8 groups of 32 terms, in halves of 16.
template <size_t Rows, size_t Vectors, size_t Lines>
CONTINUO_INLINE void six_panel(const char* at, size_t lane, const QuantisedBlock* x, const Sums& sums,
                               Ahead<Lines> ahead) {
  Vec acc[Rows][Vectors] = {};
  for (size_t g = 0; g < 8; ++g) {
    Vec total[Rows][Vectors] = {};
    for (size_t half = 2 * g; half < 2 * g + 2; ++half) {
      ahead.fetch();
      ahead.fetch();
      int32_t corrections[Rows];
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const int32_t both = x[r].corrections[g];
        corrections[r] = -zero_code(Dtype::q6_k) * (half % 2 == 0 ? first_half(both) : second_half(both));
      }
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) {
        const size_t own = lane + v * width;
        const char* codes = at + own * 4;
        const Ints high = load_ints(codes + PackedMatrix::q6_k_high + half * 256);
        const Ints low[2] = {load_ints(codes + PackedMatrix::q6_k_low + half * 512),
                             load_ints(codes + PackedMatrix::q6_k_low + half * 512 + 256)};
        const Codes of[4] = {codes_of((low[0] & 0x0F0F0F0F) | (high & 0x03030303) << 4),
                             codes_of(((low[0] >> 4) & 0x0F0F0F0F) | (high & 0x0C0C0C0C) << 2),
                             codes_of((low[1] & 0x0F0F0F0F) | (high & 0x30303030)),
                             codes_of(((low[1] >> 4) & 0x0F0F0F0F) | ((high >> 2) & 0x30303030))};
        // Both halves together are below 2²⁴: as floats they are the same numbers.
        const Vec scale = load_whole<int8_t>(at + PackedMatrix::q6_k_scales + half * tile_lanes + own);
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r) {
          Ints dot = splat_int(corrections[r]);
#pragma GCC unroll 4
          for (size_t i = 0; i < 4; ++i) dot = dot4(dot, of[i], load_terms(x[r].terms + half * 16 + i * 4));
          total[r][v] = fma(scale, to_float(dot), total[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (size_t v = 0; v < Vectors; ++v) {
      const Vec d = load_halves(at + (lane + v * width) * 2);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) acc[r][v] = fma(total[r][v], d * splat<Vec>(x[r].scales[g]), acc[r][v]);
    }
  }
  add_sums(acc, sums);
}

// The shape of a panel. Putting six bits together takes registers: of many rows, more share the codes of one vector.
template <Dtype Kind, bool Many> struct PanelShape {
  static constexpr size_t vectors = quantised_vectors, rows = quantised_rows;
};
#if defined(__AVX512F__)
template <> struct PanelShape<Dtype::q6_k, true> {
  static constexpr size_t vectors = 1, rows = 8;
};
#endif

template <Dtype Kind, size_t Group = 32> inline void blocks_as(const PackedMatrix& m, const QuantisedBlock* x,
                                                               size_t x_rows, float* y, size_t row, size_t rows,
                                                               size_t tile_begin, size_t tile_end) {
  constexpr size_t per_block = block_terms / Group;
  constexpr size_t q4_group = Group * tile_lanes / 2 + PackedMatrix::scales_bytes;
  constexpr size_t chunk_bytes = Kind == Dtype::q6_k   ? PackedMatrix::q6_k_bytes
                                 : Kind == Dtype::q4_k ? PackedMatrix::q4_k_bytes
                                                       : per_block * q4_group;
  constexpr size_t fetches = 32;  // of a chunk with all its groups
  const size_t blocks = m.blocks(), groups = m.groups(), tile_bytes = m.tile_bytes();
  const auto chunk = [&](size_t tile, size_t block) CONTINUO_LAMBDA {
    return static_cast<const char*>(m.data) + tile * tile_bytes + block * chunk_bytes;
  };
  // Rows × one chunk, while the chunk after it is fetched.
  const auto multiply_chunk = [&]<bool Many, size_t Lines>(Ahead<Lines> ahead, size_t tile,
                                                           size_t block) CONTINUO_LAMBDA {
    using Shape = PanelShape<Kind, Many>;
    constexpr size_t lanes = Shape::vectors * width;
    const char* at = chunk(tile, block);
    const size_t n = tile * tile_lanes;
    const Sums sums{y + row * m.outputs + n, m.outputs, m.outputs - n, block == 0};
    const QuantisedBlock* terms = x + block * x_rows + row;
    const size_t panels = (rows + Shape::rows - 1) / Shape::rows * (tile_lanes / lanes);
    ahead.step = chunk_bytes / panels / fetches;
    each_panel<Shape::rows>(rows, [&]<size_t Rows>(size_t first) CONTINUO_LAMBDA {
      for (size_t lane = 0; lane < least(tile_lanes, sums.lanes); lane += lanes) {
        const Sums own = sums.at(first, lane);
        if constexpr (Kind == Dtype::q6_k)
          six_panel<Rows, Shape::vectors>(at, lane, terms + first, own, ahead);
        else
          nibble_panel<Kind, Group, Rows>(at, least(per_block, groups - block * per_block), lane, terms + first, own,
                                          ahead);
        ahead.at += ahead.step * fetches;
      }
    });
  };
  // Few rows: in order of address. Many: blocks outermost, as in matmul.h.
  if (rows <= quantised_rows) {
    constexpr size_t lines = few_lines(PanelShape<Kind, false>::vectors * width, 5);
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      for (size_t block = 0; block < blocks; ++block)
        multiply_chunk.template operator()<false>(Ahead<lines>{chunk(tile, block + 1), 0}, tile, block);
    }
    return;
  }
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      const char* next = tile + 1 < tile_end ? chunk(tile + 1, block) : chunk(tile_begin, block + 1);
      multiply_chunk.template operator()<true>(Ahead<3>{next, 0}, tile, block);
    }
  }
}

inline void matmul_integers(const PackedMatrix& m, const QuantisedBlock* x, size_t x_rows, float* y, size_t row,
                            size_t rows, size_t tile, size_t tile_end) {
  switch (m.dtype) {
    case Dtype::q4:
      return m.group == 32 ? blocks_as<Dtype::q4, 32>(m, x, x_rows, y, row, rows, tile, tile_end)
                           : blocks_as<Dtype::q4, 64>(m, x, x_rows, y, row, rows, tile, tile_end);
    case Dtype::q4_k: return blocks_as<Dtype::q4_k>(m, x, x_rows, y, row, rows, tile, tile_end);
    case Dtype::q6_k: return blocks_as<Dtype::q6_k>(m, x, x_rows, y, row, rows, tile, tile_end);
    default: return matmul_quantised(m, x, x_rows, y, row, rows, tile, tile_end);
  }
}

}  // namespace continuo::CONTINUO_ISA
