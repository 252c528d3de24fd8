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
//   q8, ternary      [tiles][⌈inputs/group⌉] groups, each { codes, scales f16 [64] }; a weight is (code − zero)·scale
//     q8       zero 128, codes u8 [group/4][64][4]
//     ternary  zero 1, codes 0, 1, 2 in 2 bits, [group/4][64] bytes: bits 2i and 2i+1 of byte b are the code
//              that q8 would have at byte 64·i + b of [64][4]
// Codes past the last input or output are `zero`, scales past the last output 0.
struct PackedMatrix {
  Dtype dtype;
  size_t outputs;
  size_t inputs;
  size_t group;  // q8, ternary: 32 or 64 inputs
  const void* data;

  constexpr size_t tiles() const { return (outputs + tile_lanes - 1) / tile_lanes; }
  constexpr size_t groups() const { return (inputs + group - 1) / group; }
  constexpr size_t group_bytes() const { return group * tile_lanes / (dtype == Dtype::ternary ? 4 : 1) + scales_bytes; }
  static constexpr size_t scales_bytes = tile_lanes * 2;
};

constexpr int32_t zero_code(Dtype dtype) { return dtype == Dtype::ternary ? 1 : 128; }

}  // namespace continuo
