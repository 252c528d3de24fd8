// Casts between number formats. To a narrower float: to nearest, ties to even; overflow gives infinity in f16 and NaN
// in f8 (e4m3 has no infinity), so that an overflow can be noticed. To an integer: to nearest, ties to even, clamped to
// its range; NaN gives 0. To bool: whether the number is not zero. Every f32 and i32 is exact as a double, so a cast
// through double rounds once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/type.h"

namespace continuo {

double read_number(const std::byte* data, Type type, size_t index);
void write_number(std::byte* data, Type type, size_t index, double value);
// Writes n elements, each the number of `type` nearest to `value`.
void fill(std::byte* out, Type type, size_t n, double value);
// Index of the first number that is not finite, n where all are; at any alignment. Of other types than floats all are.
size_t first_not_finite(const std::byte* data, Type type, size_t n);
// The cast to f8, as its bits.
uint8_t narrow_f8(float value);
void cast(const std::byte* in, Type from, std::byte* out, Type to, size_t n);

}  // namespace continuo
