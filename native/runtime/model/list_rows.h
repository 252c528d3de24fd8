// Rows of the list of slots that a decoder with an external memory attends to, on their way from where they are kept:
// as f32, and a key turned to the position that its slot is (op rope).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/type.h"

namespace continuo {

// Whether keys (0) or values (1).
constexpr size_t keys_and_values = 2;

// One slot of the list: where its key and value of layer 0 begin. Plain data.
struct ListRow {
  const std::byte* from[keys_and_values] = {};         // [channels] of head 0
  std::byte* to[keys_and_values] = {};                 // f32 [heads · channels], in the device's memory
  const std::byte* exponents = nullptr;                // of f8: i8 [layers, 2, heads]: a number is code · 2^exponent
  size_t from_layer = 0, from_head = 0, to_layer = 0;  // bytes from one to the next
  // Index in ListRows::sources of the memory of the host that they lie in; none: they lie in the device's memory.
  int32_t source[keys_and_values] = {none, none};
  Type type = Type::f32;
  static constexpr int32_t none = -1;
};

struct ListRows {
  // A piece of the host's memory. A device with memory of its own copies it as a whole, so it has hardly more than what
  // the rows need; rows that lie in one source follow each other.
  struct Source {
    const std::byte* data;
    size_t bytes;
  };
  std::span<const ListRow> rows;  // of slots 0, 1, …
  std::span<const Source> sources;
  size_t layers, heads, channels;
  std::span<const uint32_t> increments;  // [pairs]
};

}  // namespace continuo
