// A matrix of a record in the form that the kernels read (weights/packed_matrix.h). The numbers stay what they are;
// what is stored in fewer bits than the kernels read is spread out: i4 to bytes, both ternary codings to 2 bits.
#pragma once

#include <cstddef>
#include <span>

#include "experts/record.h"
#include "weights/packed_matrix.h"

namespace continuo::experts {

// Without data. `group` is that of the shape; floats are as in the record.
PackedMatrix packed_form(const ExpertShape& shape, size_t which);

// Whether the kernels read the record itself: of floats its tiles are theirs.
inline bool as_stored(const ExpertShape& shape) { return is_float(shape.coding); }

// Where the codes of a matrix begin in a record.
size_t codes_at(const ExpertShape& shape, size_t which);

// Writes tile `tile` of a matrix, [tile_bytes of packed_form] bytes. Not for floats.
void unpack_tile(const ExpertShape& shape, size_t which, std::span<const std::byte> record, size_t tile, std::byte* out);

// The whole numbers of input k of a tile's 64 outputs. `codes`: those of the tile. Not for floats.
void numbers_of_input(const ExpertShape& shape, const uint8_t* codes, size_t k, int32_t* out);

// The numbers that the products stand for, [outputs][inputs] row-major in f32: code · scale, rounded once.
void widen_matrix(const ExpertShape& shape, size_t which, std::span<const std::byte> record, float* out);

}  // namespace continuo::experts
