// Rows of the list of an external memory, and what becomes of them, number by number.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/cast.h"
#include "runtime/model/list_rows.h"
#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test {

// Keys and values of some slots, [slots][layers][2][heads][channels], with gaps between heads and layers.
struct List {
  Type type;
  size_t slots, layers, heads, channels, pairs, from_head, from_layer;
  std::vector<uint32_t> increments;
  std::vector<std::byte> kept;    // [slots][2][layers of from_layer bytes]
  std::vector<int8_t> exponents;  // [layers][2][heads]; of f8

  size_t begin(size_t slot, size_t which) const { return (slot * keys_and_values + which) * layers * from_layer; }
  // The number of a channel, as it is kept.
  float number(size_t slot, size_t layer, size_t which, size_t head, size_t channel) const {
    const auto* data = kept.data() + begin(slot, which) + layer * from_layer + head * from_head;
    const auto x = static_cast<float>(read_number(data, type, channel));
    return type == Type::f8 ? std::ldexp(x, exponents[(layer * keys_and_values + which) * heads + head]) : x;
  }
};

inline List some_list(Random& random, Type type) {
  List list{};
  list.type = type;
  list.slots = 1 + random.below(20), list.layers = 1 + random.below(3), list.heads = 1 + random.below(4);
  list.pairs = 1 + random.below(40), list.channels = 2 * list.pairs + (random.below(2) ? random.below(30) : 0);
  list.from_head = list.channels * size_of(type) * (1 + random.below(2));
  list.from_layer = list.heads * list.from_head + size_of(type) * random.below(9);
  for (size_t i = 0; i < list.pairs; ++i)
    list.increments.push_back(static_cast<uint32_t>(random.next()) >> random.below(32));
  // Every kind of number, NaN too.
  list.kept.resize(list.slots * keys_and_values * list.layers * list.from_layer);
  for (auto& byte : list.kept) byte = static_cast<std::byte>(random.next());
  for (size_t i = 0; i < list.layers * keys_and_values * list.heads; ++i)
    list.exponents.push_back(static_cast<int8_t>(static_cast<int>(random.below(241)) - 120));
  return list;
}

inline std::vector<float> rule_of(const List& list, size_t slot, size_t layer, size_t which) {
  std::vector<float> out;
  for (size_t head = 0; head < list.heads; ++head) {
    for (size_t i = 0; i < list.channels; ++i) {
      const auto at = [&](size_t channel) { return list.number(slot, layer, which, head, channel); };
      if (which == 1 || i >= 2 * list.pairs) {
        out.push_back(at(i));
        continue;
      }
      const size_t pair = i % list.pairs;
      const auto [sin, cos] = reference::sincos(list.increments[pair] * static_cast<uint32_t>(slot));
      const float a = at(pair), b = at(pair + list.pairs);
      out.push_back(i < list.pairs ? std::fma(a, cos, -(b * sin)) : std::fma(b, cos, a * sin));
    }
  }
  return out;
}

inline constexpr Type list_types[] = {Type::f32, Type::f16, Type::bf16, Type::f8};

}  // namespace continuo::test
