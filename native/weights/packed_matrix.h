// PackedMatrix: the layout of a matrix that the kernels of every device read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace continuo {

constexpr size_t tile_lanes = 64;  // outputs per packed tile

// y = W·x. The outputs are cut into tiles of 64, zero-padded. The 64 weights of a tile that multiply the same x[k] lie
// side by side, so that a lane is an output.
//   f32, f16, bf16   [tiles][inputs][64] in the stored dtype
//   q8, ternary, q4  [tiles][⌈inputs/group⌉] groups, each { codes, scales f16 [64] }; a weight is (code − zero)·scale
//     q8       zero 128, codes u8 [group/4][64][4]
//     ternary  zero 1, codes 0, 1, 2 (3 in files of GGUF) in 2 bits, [group/4][64] bytes: bits 2i and 2i+1 of byte b
//              are the code that q8 would have at byte 64·i + b of [64][4]
//     q4       zero 8, codes in 4 bits, [group/8][64][4] bytes: the low bits of row i are row 2i of what q8 would have,
//              the high bits row 2i + 1
//   q4_k, q6_k       [tiles][⌈inputs/256⌉] blocks, whose groups have whole scales under those of the block
//     q4_k     { d f16 [64], dmin f16 [64], 8 × { codes as q4 [4][64][4], sc u8 [64], mn u8 [64] } };
//              a weight of a group is d·sc·code − dmin·mn
//     q6_k     { d f16 [64], sc i8 [16][64], low 4 bits of the codes as q4 [32][64][4], high 2 bits [16][64][4]: bits
//              2i and 2i+1 of row j belong to row 4j + i }; a weight is d·sc·(code − 32), with an sc for each 16 inputs
// Codes past the last input or output are `zero` (q4_k: 0), scales past the last output 0.
struct PackedMatrix {
  Dtype dtype;
  size_t outputs;
  size_t inputs;
  size_t group;  // q8, ternary, q4: 32 or 64 inputs; q4_k, q6_k: 32
  const void* data;

  constexpr size_t tiles() const { return (outputs + tile_lanes - 1) / tile_lanes; }
  constexpr size_t groups() const { return (inputs + group - 1) / group; }
  constexpr size_t blocks() const { return (inputs + block_inputs - 1) / block_inputs; }
  // q8, ternary, q4.
  constexpr size_t group_bytes() const {
    return group * tile_lanes / (dtype == Dtype::ternary ? 4 : dtype == Dtype::q4 ? 2 : 1) + scales_bytes;
  }
  constexpr size_t tile_bytes() const {
    switch (dtype) {
      case Dtype::f32: return inputs * tile_lanes * 4;
      case Dtype::f16:
      case Dtype::bf16: return inputs * tile_lanes * 2;
      case Dtype::q8:
      case Dtype::ternary:
      case Dtype::q4: return groups() * group_bytes();
      case Dtype::q4_k: return blocks() * q4_k_bytes;
      case Dtype::q6_k: return blocks() * q6_k_bytes;
    }
    return 0;
  }
  static constexpr size_t scales_bytes = tile_lanes * 2;
  static constexpr size_t block_inputs = 256;
  // Inside a block of q4_k, and of q6_k.
  static constexpr size_t q4_k_codes = tile_lanes * 16, q4_k_group = q4_k_codes + 2 * tile_lanes,
                          q4_k_head = 2 * scales_bytes, q4_k_bytes = q4_k_head + 8 * q4_k_group;
  static constexpr size_t q6_k_scales = scales_bytes, q6_k_low = q6_k_scales + 16 * tile_lanes,
                          q6_k_high = q6_k_low + 128 * tile_lanes, q6_k_bytes = q6_k_high + 64 * tile_lanes;
};

// What is subtracted from a code. q4_k: the sign of its minimum.
constexpr int32_t zero_code(Dtype dtype) {
  switch (dtype) {
    case Dtype::ternary:
    case Dtype::q4_k: return 1;
    case Dtype::q4: return 8;
    case Dtype::q6_k: return 32;
    default: return 128;
  }
}

}  // namespace continuo
