// Packs matrices that a GGUF file holds in blocks (blocks.h) for the kernels (packed_matrix.h), number by number as
// they are: Q8_0 and Q5_0 as q8, Q4_0 as q4, TQ1_0 and TQ2_0 as ternary, Q4_K and Q6_K under their own names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "weights/blocks.h"
#include "weights/weights.h"

namespace continuo {

// Writes the numbers of one output into its lane of a group of q8, ternary or q4, or of a block's codes that are laid
// out like q4. `group`: where the group begins in the tile.
void put_codes(Dtype dtype, std::byte* group, size_t lane, const int8_t* numbers, size_t count);

struct PackedAs {
  Dtype dtype;
  uint32_t group;
};
// None where the kernels have no such matrix: the numbers are widened.
std::optional<PackedAs> packed_as(const BlockFormat& format);

// Packs into `out`, where m.data points. `rows` [outputs]: the rows of the tensor, in order. Refuses scales that are
// not finite.
std::optional<Error> pack_blocks(const Tensor& tensor, std::span<const size_t> rows, const PackedMatrix& m,
                                 std::byte* out);

}  // namespace continuo
