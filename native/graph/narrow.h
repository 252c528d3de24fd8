// Keys and values that are narrower than f32.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/type.h"

namespace continuo {

// The most channels of a head that has such keys and values.
constexpr size_t most_narrow_channels = 256;

// How a table's numbers are stored; f32 for a type that is neither f16 nor bf16.
constexpr Dtype stored_as(Type type) {
  return type == Type::f16 ? Dtype::f16 : type == Type::bf16 ? Dtype::bf16 : Dtype::f32;
}

}  // namespace continuo
