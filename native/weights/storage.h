// The layouts of constants in memory, and their formats in files.
#pragma once

#include <cstdint>

namespace continuo {

// packed: a matrix in tiles for products (packed_matrix.h); rows: row-major, one row per token id; vector: f32; stack:
// packed matrices of one shape, one after the other, of which a row picks some; experts: no numbers in memory, but a
// layer of the model's expert store, of whose experts a row picks some.
enum class Layout : uint8_t { packed, rows, vector, stack, experts };
// What becomes of the numbers of a vector when they are read, in f32. neg_exp: −exp w, by exp_of() (map.h).
enum class Map : uint8_t { none, one_plus, neg_exp };
// The format of a constant's numbers in a file. `plain`: a tensor of dtype F32, F16, BF16, F8_E4M3
// (widened to f16), F64 (rounded to f32) or a block format of GGUF (widened to f32).
// The others are matrices W [N outputs, K inputs] of small integers q, with scales F16 [N, ⌈K/group⌉] in a tensor of
// their own, group 32 or 64. Numbers stored past K are ignored:
//   q8        I8 [N, K]         q, in −127…127
//   i4        U8 [N, ⌈K/2⌉]     low nibble first (the even k): q + 8
//   ternary2  U8 [N, ⌈K/4⌉]     q + 1 at bits 2·(k mod 4); 3 is no code
//   ternary3  U8 [N, ⌈K/5⌉]     Σ_i (q_i + 1)·3^i over i = k mod 5; at most 242
enum class Storage : uint8_t { plain, q8, i4, ternary2, ternary3 };

const char* name_of(Storage storage);

}  // namespace continuo
