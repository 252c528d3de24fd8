// The form in which an expert lies in memory: gate, up and down one behind the other, as the kernels read them
// (weights/packed_matrix.h). It is made of a record once, when the record arrives, and turns back into it bit for bit.
// Whole numbers that the kernels read in more bits than the store has are spread out: i4 to bytes, both ternary codings
// to 2 bits. Floats are as in the record.
#pragma once

#include <cstddef>
#include <span>

#include "experts/record.h"
#include "weights/packed_matrix.h"

namespace continuo::experts {

// Bytes of an expert in this form.
size_t form_bytes(const ExpertShape& shape);
// One matrix of an expert at `form`.
PackedMatrix matrix_of(const ExpertShape& shape, size_t which, const std::byte* form);

// `payload` has payload_bytes, `form` form_bytes. The record must hold codes only (pack_record has looked).
void to_form(const ExpertShape& shape, std::span<const std::byte> payload, std::byte* form);
void from_form(const ExpertShape& shape, const std::byte* form, std::span<std::byte> payload);

}  // namespace continuo::experts
