// From one number format to another. To a narrower float: to nearest, ties to even; f16 overflows to infinity, f8
// (e4m3, which has none) to NaN, so that a number that does not fit is seen. To an integer: to nearest, ties to even,
// clamped to its range, NaN to 0. To bool: whether it is not zero. Every f32 and i32 is a double, so going through one
// rounds once.
#pragma once

#include <cstddef>

#include "base/type.h"

namespace continuo {

double read_number(const std::byte* data, Type type, size_t index);
void write_number(std::byte* data, Type type, size_t index, double value);
// Writes n elements of `type` with the value nearest to `value`.
void fill(std::byte* out, Type type, size_t n, double value);
void cast(const std::byte* in, Type from, std::byte* out, Type to, size_t n);

}  // namespace continuo
