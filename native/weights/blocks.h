// The number formats of GGUF files: plain floats, and blocks of 32 or 256 small integers with their scales. Layouts and
// values are those of ggml (github.com/ggml-org/ggml, ggml-common.h and ggml-quants.c; MXFP4: Open Compute Project,
// "OCP Microscaling Formats", 2023). d, m and dmin are f16, lo and hi the nibbles of a byte, i an element of the block.
//
//   Q4_0   d, 16 bytes: lo of byte i for i < 16, else hi of byte i − 16       d (q − 8)
//   Q4_1   d, m, 16 bytes likewise                                            d q + m
//   Q5_0   d, u32 h, 16 bytes; q = nibble + 16 · bit i of h                   d (q − 16)
//   Q5_1   d, m, u32 h, 16 bytes likewise                                     d q + m
//   Q8_0   d, 32 × i8                                                         d q
//   Q4_K   d, dmin, 12 bytes of scales (scale_min), 128 bytes; j = ⌊i/32⌋:    (d sc_j) q − (dmin mn_j)
//          nibble of byte 32⌊j/2⌋ + i mod 32, lo for even j
//   Q5_K   d, dmin, 12, 32 bytes h, 128; nibble + 16 · bit j of h[i mod 32]   (d sc_j) q − (dmin mn_j)
//   Q6_K   128 bytes ql, 64 qh, 16 × i8 sc, d; h = ⌊i/128⌋, r = ⌊i mod 128 / 32⌋, c = i mod 32:
//          nibble of ql[64h + 32(r mod 2) + c], lo for r < 2,
//          + 16 · bits 2r, 2r+1 of qh[32h + c]                                (d sc_⌊i/16⌋) (q − 32)
//   TQ1_0  48 bytes of five trits, 4 bytes of four, d (trit)                  d (t − 1)
//   TQ2_0  64 bytes, d; bits 2r, 2r+1 of byte 32h + c, h, r, c as in Q6_K     d (t − 1)
//   MXFP4  u8 e, 16 bytes as Q4_0                                             2^(e − 127) · value of the nibble
//
// Every scale is widened to f32 first; every product, sum and difference is rounded to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace continuo {

struct BlockFormat {
  std::string_view name;
  uint32_t number;                                    // in a GGUF file
  uint32_t values;                                    // of a block; 1 for plain floats
  uint32_t bytes;                                     // of a block
  void (*widen)(const std::byte* block, float* out);  // null for plain floats
  // The whole numbers q or t of a block, those that the format subtracts something from with that subtracted. Null
  // where only `widen` is needed.
  void (*codes)(const std::byte* block, int8_t* out);
};

constexpr size_t max_block_values = 256;

// Scale and minimum of group j of Q4_K and Q5_K, six bits each, out of their 12 bytes s.
struct ScaleMin {
  int scale, minimum;
};
ScaleMin scale_min(const std::byte* s, size_t j);

// Null where the engine does not read such a format.
const BlockFormat* block_format(std::string_view name);
const BlockFormat* block_format(uint32_t number);

// The name of any number of a GGUF file's type, for messages; empty where ggml has none.
std::string_view ggml_type_name(uint32_t number);

}  // namespace continuo
