// How the codes and scales of a quantised matrix are read (packed_matrix.h has the layout), and what jobs.h does with
// them: one struct of functions for each layout. A group's codes meet terms four at a time; `words` 32-bit words of a
// lane have all codes of a group. A block of 256 terms begins at `block`, and g counts its groups.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

// Scales of one output and group: as stored, and as numbers. d: of the weights.
struct FlatStored {
  F16 d;
};
struct FlatScales {
  float d;
};
// weight = d·scale·code − dmin·minimum
struct MinimumStored {
  F16 d, dmin;
  uint8_t scale, minimum;
};
struct MinimumScales {
  float d, dmin;
  int32_t scale, minimum;
};
// An own whole scale for each half of the group.
struct HalvesStored {
  F16 d;
  int8_t scale[2];
};
struct HalvesScales {
  float d;
  int32_t scale[2];
};

CONTINUO_INLINE FlatScales widen(const FlatStored& s) { return {widen(s.d)}; }
CONTINUO_INLINE MinimumScales widen(const MinimumStored& s) { return {widen(s.d), widen(s.dmin), s.scale, s.minimum}; }
CONTINUO_INLINE HalvesScales widen(const HalvesStored& s) { return {widen(s.d), {s.scale[0], s.scale[1]}}; }

// The group's dot, or that of a half, with its whole scale.
CONTINUO_INLINE int32_t scaled(const FlatScales&, uint32_t, int32_t dot) { return dot; }
CONTINUO_INLINE int32_t scaled(const MinimumScales& s, uint32_t, int32_t dot) { return s.scale * dot; }
CONTINUO_INLINE int32_t scaled(const HalvesScales& s, uint32_t half, int32_t dot) { return s.scale[half] * dot; }

// acc with a group in it. x_scale, correction: of the row's group.
template <class Scales>
CONTINUO_INLINE float with_group(float acc, int32_t dot, const Scales& s, float x_scale, int32_t correction) {
  acc = fma(to_float(dot), s.d * x_scale, acc);
  if constexpr (requires { s.dmin; }) acc = fma(to_float(s.minimum * correction), s.dmin * x_scale, acc);
  return acc;
}

CONTINUO_INLINE F16 half_at(const char* p, uint32_t lane) { return load_once(reinterpret_cast<const F16*>(p) + lane); }
CONTINUO_INLINE uint32_t word_at(const char* p, uint32_t lane) {
  return load_once(reinterpret_cast<const uint32_t*>(p) + lane);
}
CONTINUO_INLINE FourWords four_at(const char* p, uint32_t lane) {
  return *reinterpret_cast<const FourWords*>(reinterpret_cast<const uint32_t*>(p) + lane);
}
CONTINUO_INLINE FourWords each_of(FourWords words, const auto& f) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) words.at[i] = f(words.at[i]);
  return words;
}

// code − Zero in every byte, for codes and Zero below 128: the high bit, lent, keeps each byte to itself.
template <uint32_t Zero> CONTINUO_INLINE uint32_t less_zero(uint32_t codes) {
  return ((codes | 0x80808080u) - Zero * 0x01010101u) ^ 0x80808080u;
}
CONTINUO_INLINE uint32_t nibbles(uint32_t word, uint32_t which) { return word >> (4 * which) & 0x0F0F0F0Fu; }
CONTINUO_INLINE uint32_t pairs(uint32_t word, uint32_t which) { return word >> (2 * which) & 0x03030303u; }

// What all layouts share.
template <uint32_t Group> struct CodesBase {
  static constexpr uint32_t group = Group, row_bytes = tile_lanes * 4;  // of 4 terms
  static constexpr uint32_t each = 1;                                   // outputs of a lane that share their words
  static constexpr uint32_t halves = 1;                                 // of a group, with whole scales of their own
  static constexpr uint32_t batch = 128 / Group;                        // groups that a thread has on their way at once
  static constexpr bool corrected = true;                               // whether row corrections are needed
  static constexpr bool minima = false;                                 // also by products of many rows
  // What a dot begins with, where codes are not less their zero.
  static CONTINUO_INLINE int32_t start(int32_t correction, uint32_t) { return correction; }
};

// Layouts whose groups stand side by side, each with its scales behind its codes.
template <uint32_t Group, uint32_t CodesBytes> struct FlatCodes : CodesBase<Group> {
  using Stored = FlatStored;
  using Scales = FlatScales;
  static constexpr uint32_t group_bytes = CodesBytes + static_cast<uint32_t>(PackedMatrix::scales_bytes),
                            block_bytes = block_terms / Group * group_bytes;
  static CONTINUO_INLINE size_t tile_bytes(uint32_t inputs) { return size_t{pieces(inputs, Group)} * group_bytes; }
  static CONTINUO_INLINE const char* at(const char* block, uint32_t g) { return block + g * group_bytes; }
  static CONTINUO_INLINE Stored scales(const char* block, uint32_t g, uint32_t output) {
    return {half_at(at(block, g) + CodesBytes, output)};
  }
};

template <Dtype Kind, uint32_t Group> struct Codes;

template <uint32_t Group> struct Codes<Dtype::q8, Group> : FlatCodes<Group, Group * tile_lanes> {
  using Base = FlatCodes<Group, Group * tile_lanes>;
  static constexpr uint32_t words = Group / 4;
  static constexpr bool corrected = false;
  static CONTINUO_INLINE int32_t start(int32_t, uint32_t) { return 0; }
  static CONTINUO_INLINE uint32_t word(const char* block, uint32_t g, uint32_t i, uint32_t lane) {
    return word_at(Base::at(block, g) + i * Base::row_bytes, lane);
  }
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j, uint32_t) { return own[j] ^ 0x80808080u; }
  static CONTINUO_INLINE FourWords signed_codes(const char* block, uint32_t g, uint32_t j, uint32_t column) {
    return each_of(four_at(Base::at(block, g) + j * Base::row_bytes, column),
                   [](uint32_t word) { return word ^ 0x80808080u; });
  }
};

// Outputs n, n + 16, n + 32 and n + 48 of a tile share their words.
template <uint32_t Group> struct Codes<Dtype::ternary, Group> : FlatCodes<Group, Group / 4 * tile_lanes> {
  using Base = FlatCodes<Group, Group / 4 * tile_lanes>;
  static constexpr uint32_t each = 4, words = Group / 4, row_bytes = tile_lanes;
  static CONTINUO_INLINE uint32_t word(const char* block, uint32_t g, uint32_t i, uint32_t lane) {
    return word_at(Base::at(block, g) + i * row_bytes, lane);
  }
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j, uint32_t e) { return pairs(own[j], e); }
  static CONTINUO_INLINE FourWords signed_codes(const char* block, uint32_t g, uint32_t j, uint32_t column) {
    return each_of(four_at(Base::at(block, g) + j * row_bytes, column % 16),
                   [=](uint32_t word) { return less_zero<1>(pairs(word, column / 16)); });
  }
};

// Codes in 4 bits at `base` + 256 bytes for each 8 terms.
struct Nibbles {
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j) { return nibbles(own[j / 2], j % 2); }
  static CONTINUO_INLINE FourWords four(const char* base, uint32_t j, uint32_t column) {
    return each_of(four_at(base + j / 2 * tile_lanes * 4, column), [=](uint32_t word) { return nibbles(word, j % 2); });
  }
};

template <uint32_t Group> struct Codes<Dtype::q4, Group> : FlatCodes<Group, Group / 2 * tile_lanes> {
  using Base = FlatCodes<Group, Group / 2 * tile_lanes>;
  static constexpr uint32_t words = Group / 8, batch = 256 / Group;
  static CONTINUO_INLINE uint32_t word(const char* block, uint32_t g, uint32_t i, uint32_t lane) {
    return word_at(Base::at(block, g) + i * Base::row_bytes, lane);
  }
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j, uint32_t) { return Nibbles::codes(own, j); }
  static CONTINUO_INLINE FourWords signed_codes(const char* block, uint32_t g, uint32_t j, uint32_t column) {
    return each_of(Nibbles::four(Base::at(block, g), j, column), [](uint32_t codes) { return less_zero<8>(codes); });
  }
};

template <> struct Codes<Dtype::q4_k, 32> : CodesBase<32> {
  using Stored = MinimumStored;
  using Scales = MinimumScales;
  static constexpr uint32_t words = 4, batch = 8, block_bytes = PackedMatrix::q4_k_bytes;
  static constexpr bool minima = true;
  static CONTINUO_INLINE size_t tile_bytes(uint32_t inputs) {
    return size_t{pieces(inputs, block_terms)} * block_bytes;
  }
  static CONTINUO_INLINE const char* at(const char* block, uint32_t g) {
    return block + PackedMatrix::q4_k_head + g * PackedMatrix::q4_k_group;
  }
  static CONTINUO_INLINE int32_t start(int32_t, uint32_t) { return 0; }  // the correction goes with the minimum
  static CONTINUO_INLINE uint32_t word(const char* block, uint32_t g, uint32_t i, uint32_t lane) {
    return word_at(at(block, g) + i * row_bytes, lane);
  }
  static CONTINUO_INLINE Stored scales(const char* block, uint32_t g, uint32_t output) {
    const auto* const own = reinterpret_cast<const uint8_t*>(at(block, g) + PackedMatrix::q4_k_codes) + output;
    return {half_at(block, output), half_at(block + PackedMatrix::scales_bytes, output), load_once(own),
            load_once(own + tile_lanes)};
  }
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j, uint32_t) { return Nibbles::codes(own, j); }
  static CONTINUO_INLINE FourWords signed_codes(const char* block, uint32_t g, uint32_t j, uint32_t column) {
    return Nibbles::four(at(block, g), j, column);
  }
};

template <> struct Codes<Dtype::q6_k, 32> : CodesBase<32> {
  using Stored = HalvesStored;
  using Scales = HalvesScales;
  static constexpr uint32_t words = 6, halves = 2, block_bytes = PackedMatrix::q6_k_bytes;
  static CONTINUO_INLINE size_t tile_bytes(uint32_t inputs) {
    return size_t{pieces(inputs, block_terms)} * block_bytes;
  }
  static CONTINUO_INLINE const char* low(const char* block, uint32_t g) {
    return block + PackedMatrix::q6_k_low + g * 4 * row_bytes;
  }
  static CONTINUO_INLINE const char* high(const char* block, uint32_t g) {
    return block + PackedMatrix::q6_k_high + g * 2 * row_bytes;
  }
  static CONTINUO_INLINE int32_t start(int32_t correction, uint32_t half) {
    return -zero_code(Dtype::q6_k) * (half == 0 ? first_half(correction) : second_half(correction));
  }
  static CONTINUO_INLINE uint32_t word(const char* block, uint32_t g, uint32_t i, uint32_t lane) {
    return word_at(i < 4 ? low(block, g) + i * row_bytes : high(block, g) + (i - 4) * row_bytes, lane);
  }
  static CONTINUO_INLINE Stored scales(const char* block, uint32_t g, uint32_t output) {
    const auto* const own =
        reinterpret_cast<const int8_t*>(block + PackedMatrix::q6_k_scales + g * 2 * tile_lanes) + output;
    return {half_at(block, output), {load_once(own), load_once(own + tile_lanes)}};
  }
  static CONTINUO_INLINE uint32_t codes(const uint32_t* own, uint32_t j, uint32_t) {
    return Nibbles::codes(own, j) | pairs(own[4 + j / 4], j % 4) << 4;
  }
  static CONTINUO_INLINE FourWords signed_codes(const char* block, uint32_t g, uint32_t j, uint32_t column) {
    FourWords out = Nibbles::four(low(block, g), j, column);
    const FourWords above = four_at(high(block, g) + j / 4 * row_bytes, column);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) out.at[i] = less_zero<32>(out.at[i] | pairs(above.at[i], j % 4) << 4);
    return out;
  }
};

}  // namespace continuo::cuda
